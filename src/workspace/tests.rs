use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

use super::*;
use crate::testing::TempFolder;

fn identity(name: &str, gateway: &str) -> Identity {
    Identity { name: name.to_owned(), gateway: gateway.to_owned(), gateway_name: gateway.to_owned(), runtime_dir: None }
}

fn mkdir(path: &Path, mode: u32) {
    fs::DirBuilder::new().create(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_root_is_the_nearest_folder_with_a_private_ghost_folder() {
    let temp = TempFolder::new();
    let (top, inner) = (temp.path().join("top"), temp.path().join("top/a/b"));
    fs::DirBuilder::new().recursive(true).mode(0o755).create(&inner).unwrap();
    let uid = nix::unistd::getuid().as_raw();
    mkdir(&top.join(".ghost"), 0o755);
    mkdir(&top.join("a/.ghost"), 0o777);
    symlink(top.join(".ghost"), inner.join(".ghost")).unwrap();

    assert_eq!(root_of(&inner, uid), top);
    assert_eq!(root_of(&inner, uid + 1), inner, "another user's does not count");
}

#[test]
fn without_a_ghost_folder_the_working_directory_is_the_root() {
    let temp = TempFolder::new();

    assert_eq!(root_of(temp.path(), nix::unistd::getuid().as_raw()), temp.path());
}

#[test]
fn root_name_and_gateway_each_make_another_session() {
    let base = Session::of(&identity("a", "local"), Path::new("/w"));

    assert_eq!(base.key, Session::of(&identity("a", "local"), Path::new("/w")).key);
    for (other, folder) in [
        (identity("b", "local"), "/w"),
        (identity("a", "https://h"), "/w"),
        (identity("a", "local"), "/v"),
        (identity("", "alocal"), "/w"),
    ] {
        assert_ne!(base.key, Session::of(&other, Path::new(folder)).key);
    }
    assert_eq!(base.key.as_str().len(), 32);
}

#[test]
fn every_socket_of_a_folder_is_listed_and_nothing_else() {
    let temp = TempFolder::new();
    for name in ["b.sock", "a.sock", "a.lock", "c.start", "sock", "README"] {
        fs::write(temp.path().join(name), "").unwrap();
    }

    let found = SessionFiles::all_in(temp.path());

    let sockets: Vec<_> = found.iter().map(|files| files.socket.to_path_buf()).collect();
    assert_eq!(sockets, [temp.path().join("a.sock"), temp.path().join("b.sock")]);
    assert!(SessionFiles::all_in(&temp.path().join("missing")).is_empty());
}

#[test]
fn a_socket_is_reached_however_long_its_path_is() {
    use std::os::unix::net::{UnixListener, UnixStream};
    let temp = TempFolder::new();
    let session = Session::of(&identity("a", "local"), Path::new("/w"));

    for length in [1, 60, 108, 200] {
        let folder = temp.path().join("x".repeat(length));
        fs::create_dir(&folder).unwrap();
        let address = session.files(&folder).socket_address();
        if cfg!(not(target_os = "linux")) && length >= 108 {
            assert_eq!(address.unwrap_err().code, FaultCode::NoBrowser);
            continue;
        }
        let address = address.unwrap();
        let _listener = UnixListener::bind(address.path()).unwrap();

        UnixStream::connect(address.path()).unwrap();

        assert!(folder.join(format!("{}.sock", session.key)).exists());
    }
}
