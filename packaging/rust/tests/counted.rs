//! Alone in its program, so that nothing else allocates meanwhile.
#![cfg(feature = "stats")]

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

/// The control of the doc tests: without `#[global_allocator]` these bytes would not be counted.
#[test]
fn what_rust_allocates_is_counted() {
    let before = hakmem::stats().unwrap().live_bytes;
    let block = vec![1u8; 64 << 20];
    let with = hakmem::stats().unwrap().live_bytes;
    assert!(with >= before + block.len() as u64);
    drop(block);
    hakmem::trim(0);
    assert!(hakmem::stats().unwrap().live_bytes < with);
}
