//! The names of CDP's commands and their parameters, for completion and for guesses at what was meant.
//!
//! The list is the published description's (npm `devtools-protocol` 0.0.1734725, BSD-3-Clause), names only. The
//! browser may know more and less than it: a name that is not here is never refused, only wondered about.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::hints::nearest;

/// One command a line, its parameters behind it.
static NAMES: &str = include_str!("protocol.txt");

static COMMANDS: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| NAMES.lines().map(|line| line.split_once(' ').unwrap_or((line, ""))).collect());

/// The commands that are known.
pub fn commands() -> impl Iterator<Item = &'static str> {
    NAMES.lines().filter_map(|line| line.split(' ').next())
}

/// The parameters of a command; `None` for one that is not known.
pub fn parameters(method: &str) -> Option<impl Iterator<Item = &'static str> + use<>> {
    COMMANDS.get(method).map(|names| names.split(' ').filter(|name| !name.is_empty()))
}

/// The domains that the browser itself has: their commands need no page.
const OF_THE_BROWSER: &[&str] = &["Browser", "SystemInfo", "Target"];

/// What to type instead of a command that was not known where it went: to the browser itself, or to a session.
pub fn command_hint(method: &str, went_to_the_browser: bool) -> Option<String> {
    if COMMANDS.contains_key(method) {
        let domain = method.split('.').next().unwrap_or_default();
        return Some(match went_to_the_browser && !OF_THE_BROWSER.contains(&domain) {
            true => {
                format!("it is a page's command, and no page was given: `cdp(\"{method}\", #{{…}}, ensure_page())`")
            }
            false => format!("this browser has no {method}, or not for this kind of target"),
        });
    }
    if let Some(near) = nearest(method, commands()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let name = method.rsplit('.').next().unwrap_or(method);
    let elsewhere = COMMANDS.keys().filter(|known| known.rsplit('.').next() == Some(name)).min()?;
    Some(format!("did you mean `{elsewhere}`?"))
}

/// What a command takes, when it is known.
pub fn parameters_hint(method: &str) -> Option<String> {
    match *COMMANDS.get(method)? {
        "" => Some(format!("{method} takes no parameters")),
        parameters => Some(format!("{method} takes {}", parameters.replace(' ', ", "))),
    }
}

/// A sentence about a parameter that the command does not have: the browser would say nothing.
pub fn doubt<'a>(method: &str, given: impl Iterator<Item = &'a str>) -> Option<String> {
    let known = COMMANDS.get(method)?;
    let is_known = |name: &str| known.split(' ').any(|known| known == name);
    let mut given = given;
    let odd = given.find(|name| !is_known(name))?;
    Some(match nearest(odd, known.split(' ').filter(|known| !known.is_empty())) {
        Some(near) => format!("{method} has no parameter `{odd}`; did you mean `{near}`? It was sent as it is"),
        None => format!("{method} has no parameter `{odd}`; it was sent as it is"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_not_known_gets_the_nearest_one() {
        for (typed, meant) in [
            ("Page.navigat", "Page.navigate"),
            ("page.navigate", "Page.navigate"),
            ("Runtime.evalute", "Runtime.evaluate"),
            ("Browser.captureScreenshot", "Page.captureScreenshot"),
        ] {
            assert_eq!(command_hint(typed, true), Some(format!("did you mean `{meant}`?")));
        }
        assert_eq!(command_hint("Nothing.likeThis", true), None);
    }

    #[test]
    fn a_pages_command_that_went_to_the_browser_is_told_that_the_page_is_missing() {
        for (method, went_to_the_browser, expected) in [
            ("Page.navigate", true, "`cdp(\"Page.navigate\", #{…}, ensure_page())`"),
            ("Page.navigate", false, "not for this kind of target"),
            ("Target.openDevTools", true, "this browser has no Target.openDevTools"),
        ] {
            let hint = command_hint(method, went_to_the_browser).unwrap_or_default();

            assert!(hint.contains(expected), "{method}: {hint}");
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_is_wondered_about() {
        let doubted = doubt("Page.navigate", ["url", "refferer"].into_iter()).unwrap();

        assert!(doubted.contains("`refferer`; did you mean `referrer`?"), "{doubted}");
        assert_eq!(doubt("Page.navigate", ["url"].into_iter()), None);
        assert_eq!(doubt("Newer.command", ["anything"].into_iter()), None);
        assert!(doubt("Page.disable", ["x"].into_iter()).is_some());
        assert_eq!(parameters_hint("Page.disable").as_deref(), Some("Page.disable takes no parameters"));
    }
}
