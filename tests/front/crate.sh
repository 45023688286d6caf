#!/bin/bash
# crate.sh SOURCE: the crate. Cargo packs it and builds what it packed; its tests and the examples of its documents pass
# with each feature; the feature secure ends a program that frees twice.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
command -v cargo >/dev/null || skip "there is no cargo"
unset LD_PRELOAD HAKMEM_PROFILE
unset "${!HAKMEM_@}"
crate=$("$source/hak" package crate) || fail "hak package crate"
tar -xzf "$crate" -C "$work"
cd "$work"/hakmem-*
grep -q '#define HAKMEM_VERSION_MINOR' c/include/hakmem/hakmem.h || fail "the crate has no C sources"
export CARGO_TARGET_DIR=$work/target
for features in stats secure,stats; do
  cargo test -q --features "$features" >"$work/log" 2>&1 || fail "features '$features': $(cat "$work/log")"
  [ "$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$work/log" | awk '{ sum += $1 } END { print sum }')" -ge 9 ] ||
    fail "features '$features': few tests ran: $(cat "$work/log")"
done
if cargo clippy --version >/dev/null 2>&1; then cargo clippy -q --all-targets --all-features -- -D warnings || fail "clippy"; fi
crate=$PWD
mkdir -p "$work/program/src"
cd "$work/program"
cat >Cargo.toml <<T
[package]
name = "twice"
version = "0.1.0"
edition = "2021"
[dependencies]
hakmem = { path = "$crate", features = ["secure", "stats"] }
T
cat >src/main.rs <<'T'
use std::alloc::{alloc, dealloc, Layout};
#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
fn main() {
    let layout = Layout::new::<[u64; 8]>();
    unsafe {
        let block = alloc(layout);
        dealloc(block, layout);
        dealloc(block, layout);
    }
}
T
cargo run -q >"$work/log" 2>&1 && fail "secure lets a double free pass"
grep -q 'hakmem: .*free' "$work/log" || fail "secure says: $(cat "$work/log")"
echo "the crate is packed, built and used"
