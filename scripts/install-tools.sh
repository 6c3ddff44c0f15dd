# shellcheck shell=bash
# Functions that install what scripts need, for scripts/test and scripts/dist. Pinned tools go into the cache directory
# $tools; Debian packages are installed by apt if the user is root.

tools="${TEST_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/brigade-tests}"
export TEST_TOOLS="$tools"

step() { printf '\n== %s\n' "$*"; }

# need PACKAGE COMMAND...: a Debian package, and a command that succeeds if it is installed
need() {
  local package="$1"; shift
  "$@" >/dev/null 2>&1 && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq "$package" && return
  fi
  echo "$0: the package '$package' is missing. Install it (Debian: apt-get install $package)." >&2
  exit 1
}

# need_cargo_tool NAME VERSION: a command of cargo
need_cargo_tool() {
  grep -qs "^\"$1 $2 " "$tools/.crates.toml" && [ -x "$tools/bin/$1" ] && return
  step "installing $1 $2 into $tools"
  cargo install "$1" --version "$2" --locked --debug --quiet --force --root "$tools"
}

# need_python NAME FILE: Python packages of a file with versions and hashes, in an environment of their own
need_python() {
  need python3 command -v python3
  need python3-venv python3 -c 'import ensurepip, venv'
  cmp -s "$2" "$tools/$1/installed" && return
  step "installing the Python packages '$1' into $tools"
  python3 -m venv --clear "$tools/$1"
  "$tools/$1/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes -r "$2"
  cp "$2" "$tools/$1/installed"
}
