# What the scripts share: a Chromium and a C compiler to be had. Sourced, never run.

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "error: $*"
    exit 1
}

# Asking for the version tells a browser from Ubuntu's stub, which only says where to find the snap.
works() {
    command -v "$1" >/dev/null 2>&1 && "$1" --version >/dev/null 2>&1
}

# Prints the Chromium that ghost-browser will find; the order is its own.
find_chromium() {
    for name in "${GHOST_BROWSER_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable \
        chrome microsoft-edge brave-browser \
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" \
        "/Applications/Chromium.app/Contents/MacOS/Chromium" \
        "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge" \
        "/Applications/Brave Browser.app/Contents/MacOS/Brave Browser"; do
        if [ -n "$name" ] && works "$name"; then
            printf '%s\n' "$name"
            return 0
        fi
    done
    return 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        fail "root is needed for: $*"
    fi
}

# install APT DNF PACMAN APK: the names of one thing in each package manager, several separated by spaces.
install() {
    # The names are words on purpose.
    # shellcheck disable=SC2086
    if command -v apt-get >/dev/null 2>&1; then
        say "installing with apt-get: $1"
        as_root apt-get update -q >&2
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $1 >&2
    elif command -v dnf >/dev/null 2>&1; then
        say "installing with dnf: $2"
        as_root dnf install -q -y $2 >&2
    elif command -v pacman >/dev/null 2>&1; then
        say "installing with pacman: $3"
        as_root pacman -Sy --needed --noconfirm $3 >&2
    elif command -v apk >/dev/null 2>&1; then
        say "installing with apk: $4"
        as_root apk add --no-cache $4 >&2
    else
        fail "no package manager that this script knows; install by hand: $1"
    fi
}

is_ubuntu() {
    [ -r /etc/os-release ] && (. /etc/os-release && [ "${ID:-}" = ubuntu ])
}

need_chromium() {
    if [ -n "${GHOST_BROWSER_CHROMIUM:-}" ] && ! works "$GHOST_BROWSER_CHROMIUM"; then
        fail "GHOST_BROWSER_CHROMIUM names nothing that runs: $GHOST_BROWSER_CHROMIUM"
    fi
    if chromium=$(find_chromium); then
        say "using Chromium: $chromium"
        return 0
    fi
    if [ "$(uname -s)" = Darwin ]; then
        fail "no Chrome or Chromium found; install one (for example: brew install --cask google-chrome), or set GHOST_BROWSER_CHROMIUM to its path"
    fi
    if is_ubuntu; then
        fail "no Chrome or Chromium found; Ubuntu's own package is a stub for a snap, which does not work in most containers: install Google's .deb, or set GHOST_BROWSER_CHROMIUM to a Chromium's path"
    fi
    say "no Chromium found"
    install "chromium fonts-liberation" "chromium liberation-fonts" "chromium ttf-liberation" "chromium ttf-liberation"
    chromium=$(find_chromium) || fail "the package was installed, but no Chromium that runs was found"
    say "using Chromium: $chromium"
}

need_toolchain() {
    command -v cargo >/dev/null 2>&1 || fail "cargo not found; install Rust first (https://rustup.rs)"
    if ! command -v cc >/dev/null 2>&1; then
        say "no C compiler found; Rust links with one, and the TLS library is partly C"
        install "gcc libc6-dev" "gcc glibc-devel" "gcc" "gcc musl-dev"
    fi
}
