#!/usr/bin/env bash
# What is installed is what a program needs: built by pkg-config and by find_package from a copy
# elsewhere, the example runs against a server. And the library exports what header and version
# script say, no more.
source "$(dirname "$0")/lib.sh"
build=${BRAID_BUILD_DIR:-${BRAID_BIN_DIR%/bin}}
of_build() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
sanitizers=$(of_build BRAID_SANITIZE)
need cmake pkg-config nm cc
root=$PWD
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/install.log" ||
  fail "the installation failed"
library=$(find "$prefix" -name 'libbraid.so.*.*.*')
[[ $library == */libbraid.so.0.1.0 ]] || fail "no libbraid.so.0.1.0 but \"$library\""
lib=$(dirname "$library")
# Before 1.0 a program built with one minor version does not run with another, as CMake's package
# says, too.
soname=$(objdump -p "$library" | awk '$1 == "SONAME" {print $2}')
[[ $soname == libbraid.so.0.1 ]] || fail "the library's soname is \"$soname\", not libbraid.so.0.1"
for file in "$lib/libbraid.so" "$lib/libbraid.so.0.1" "$prefix/include/braid/braid.h" \
  "$prefix/bin/braid" "$prefix/bin/braidd"; do
  [[ -e $file ]] || fail "$file was not installed"
done
unit=$prefix/lib/systemd/system/braidd.service
started=$(sed -n 's/^ExecStart=//p' "$unit")
[[ $started -ef $prefix/bin/braidd ]] ||
  fail "the unit starts another braidd than is installed, $started"
read -ra documents < <(sed -n 's/^Documentation=//p' "$unit")
((${#documents[@]} > 0)) || fail "the unit names no document"
for document in "${documents[@]#file:}"; do
  [[ $document -ef $prefix/share/doc/braid/${document##*/} ]] ||
    fail "the unit names a document that is not installed with it, $document"
done
# Staged, it names the places where it will be found.
DESTDIR=$work/staged cmake --install "$build" --prefix /opt/braid --component service \
  >"$work/install.log" || fail "the staged installation failed"
grep -qx 'ExecStart=/opt/braid/bin/braidd' \
  "$work/staged/opt/braid/lib/systemd/system/braidd.service" ||
  fail "the staged unit: $(grep ExecStart -r "$work/staged")"
# `braid` finds the program that it becomes for these.
"$prefix/bin/braid" key new vm7 >"$work/key" && grep -q '^vm7:' "$work/key" ||
  fail "the installed braid makes no key"
echo 'nonsense = 1' >"$work/wrong.toml"
"$prefix/bin/braid" config check "$work/wrong.toml" >"$work/check" 2>&1 &&
  fail "the installed braid takes any configuration"
grep -q 'wrong.toml' "$work/check" || fail "the installed braid does not judge: $(<"$work/check")"

# --- benchmarks, if they were built: rows without a peer need nothing else
if grep -q '^BRAID_BENCH:BOOL=ON' "$build/CMakeCache.txt"; then
  (cd "$work" && "$prefix/bin/braid-bench" micro --quick --filter immediate >bench.log &&
    [[ -s micro.json ]]) || fail "the installed benchmarks do not run"
fi

# --- symbols
words() { grep -oE '\bbraid_[a-z_]+' "$@" | sort -u; }
exported=$(nm -D --defined-only --with-symbol-versions "$library" |
  awk '$2 != "A" && $3 !~ /^__(asan|odr|tsan|ubsan)/ {print $3}' | sort)
header=$(grep -oE '^BRAID_API .*' "$prefix/include/braid/braid.h" |
  grep -oE '\bbraid_[a-z_]+\(' | tr -d '(' | sort -u)
script=$(words capi/braid.map)
versioned=${header//$'\n'/@@BRAID_0.1$'\n'}@@BRAID_0.1
[[ $exported == "$versioned" ]] ||
  fail "the library exports other than the header declares: $exported / $header"
[[ $script == "$header" ]] || fail "capi/braid.map names other than the header: $script"
if objdump -T "$library" | grep -E '\.text.*_ZN'; then fail "C++ is exported"; fi

# --- a program of somebody else's
# A library with a sanitizer needs it in the program, too, and of the same compiler.
flags=${sanitizers:+-fsanitize=$sanitizers}
export CC=cc
[[ ! $sanitizers ]] || CC=$(of_build CMAKE_C_COMPILER)
export PKG_CONFIG_PATH=$lib/pkgconfig
[[ $(pkg-config --modversion braid) == 0.1.0 ]] || fail "pkg-config tells another version"
# shellcheck disable=SC2046,SC2086 # several words each
"$CC" $flags -std=c11 -Wall -Wextra -Werror -pedantic -Wno-strict-prototypes \
  "$root/examples/check.c" $(pkg-config --cflags --libs braid) -Wl,-rpath,"$lib" -o "$work/check"
cmake -S "$root/examples" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_FLAGS="$flags" >"$work/cmake.log" || fail "find_package does not find it"
cmake --build "$work/cmake" >>"$work/cmake.log" || fail "the example does not build by find_package"
# The header is C++, too.
echo '#include <braid/braid.h>' | c++ -x c++ -Wall -Wextra -Werror -fsyntax-only \
  -I"$prefix/include" - || fail "the header is no C++"

start_server --memory ram=1M
for program in "$work/check" "$work/cmake/check"; do
  said=$("$program" "127.0.0.1:$port/ram" 2>&1) || fail "$program: $said"
  [[ $said == *"read 8 blocks as they were written"* ]] || fail "$program said: $said"
  said=$("$program" "127.0.0.1:$port/gone" 2>&1) && fail "there is no such disk: $said"
  [[ $said == *gone* ]] || fail "the refusal does not name the disk: $said"
done
