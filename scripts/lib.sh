# Shared functions, sourced by the other scripts.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Configures a preset and builds it, or some of its targets: build_preset release [-DNAME=VALUE ...]
# [-- TARGET ...]. Uses ccache if it is installed. Prints what this machine lacks for other parts of the
# build, and CMake's output only on errors.
build_preset() {
  local preset=$1 settings=() targets=() log
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    settings+=("$1")
    shift
  done
  if [ $# -gt 1 ]; then
    shift
    targets=(--target "$@")
  fi
  if command -v ccache >/dev/null; then
    # Compiler arguments name this checkout; without a base directory two clones share nothing.
    export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
    settings+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  log=$(mktemp)
  if ! cmake --preset "$preset" ${settings[@]+"${settings[@]}"} >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  sed -n 's/^-- Left out:/Left out of the build:/p' "$log"
  rm -f "$log"
  cmake --build --preset "$preset" ${targets[@]+"${targets[@]}"}
}
