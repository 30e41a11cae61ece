# What the scripts share; sourced by them.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Configures and builds a preset: build_preset release [-DNAME=VALUE ...]. Uses ccache where it is.
# Says little when all goes well.
build_preset() {
  local preset=$1 log
  shift
  if command -v ccache >/dev/null; then
    # Compiler arguments name this checkout; without a base directory two clones share nothing.
    export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
    set -- -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@"
  fi
  log=$(mktemp)
  if ! cmake --preset "$preset" "$@" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
  cmake --build --preset "$preset"
}
