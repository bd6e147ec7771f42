use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::testing::TempFolder;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

fn folder_with_mode(path: &Path, mode: u32) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_missing_folder_is_created_closed_to_others_and_found_from_then_on() {
    let temp = TempFolder::new();
    let folder = temp.path().join("new/state");
    let places = Places::new(Some(&folder));
    assert!(places.find().folders.is_empty());
    assert!(!folder.exists(), "a look-up creates nothing");

    let created = places.create().unwrap();

    assert_eq!((created.as_path(), mode(&folder)), (folder.as_path(), 0o700));
    assert_eq!(places.find().folders, [folder]);
}

#[test]
fn an_unsafe_folder_is_refused_and_left_as_it_is() {
    let temp = TempFolder::new();
    let at = |name: &str| temp.path().join(name);
    folder_with_mode(&at("real"), 0o700);
    symlink(at("real"), at("link")).unwrap();
    fs::write(at("file"), "").unwrap();
    folder_with_mode(&at("open"), 0o777);
    folder_with_mode(&at("readonly"), 0o500);

    for (name, reason) in [
        ("link", "is a symbolic link"),
        ("file", "is not a folder"),
        ("open", "has mode 0777, not 0700"),
        ("readonly", "has mode 0500, not 0700"),
    ] {
        let before = mode(&at(name));
        let places = Places::new(Some(&at(name)));

        let refusal = places.create().unwrap_err();

        assert_eq!(refusal.code, FaultCode::NoBrowser);
        assert!(refusal.message.ends_with(reason), "{}", refusal.message);
        // It may be anything, `/tmp` or a file of the system: nobody is told to remove it.
        assert!(refusal.hint.as_ref().is_some_and(|hint| hint.contains(RUNTIME_DIR) && !hint.contains("remove")));
        let found = places.find();
        assert!(found.folders.is_empty() && found.refused.len() == 1);
        assert_eq!(mode(&at(name)), before);
    }
}

#[test]
fn another_users_folder_is_refused() {
    let temp = TempFolder::new();
    let places = Places { candidates: vec![temp.path().to_owned()], uid: nix::unistd::getuid().as_raw() + 1 };

    let refusal = places.create().unwrap_err();

    assert!(refusal.message.contains("belongs to user"), "{}", refusal.message);
}

#[test]
fn a_folder_that_cannot_be_made_is_no_browser() {
    let temp = TempFolder::new();
    fs::write(temp.path().join("file"), "").unwrap();

    let refusal = Places::new(Some(&temp.path().join("file/state"))).create().unwrap_err();

    assert_eq!(refusal.code, FaultCode::NoBrowser);
}

#[test]
fn a_relative_folder_would_depend_on_the_working_directory() {
    let refusal = Places::new(Some(Path::new("state"))).create().unwrap_err();

    assert_eq!(refusal.code, FaultCode::Setting);
    assert!(!Path::new("state").exists());
}

#[test]
fn look_ups_search_all_and_creation_takes_the_first() {
    let temp = TempFolder::new();
    let (first, second) = (temp.path().join("first"), temp.path().join("second"));
    folder_with_mode(&second, 0o700);
    let places = Places { candidates: vec![first.clone(), second.clone()], uid: nix::unistd::getuid().as_raw() };
    assert_eq!(places.find().folders, std::slice::from_ref(&second));

    assert_eq!(places.create().unwrap(), first);

    assert_eq!(places.find().folders, [first, second]);
}

#[test]
#[cfg(target_os = "linux")]
fn the_systems_folders_are_named_by_the_user_alone() {
    let uid = nix::unistd::getuid();

    let candidates = Places::new(None).candidates;

    let last = candidates.last().unwrap();
    assert_eq!(last, &PathBuf::from(format!("/tmp/ghost-browser-{uid}")));
}
