//! A program whose allocator is hakmem: threads, alignments, growth.

use std::alloc::{alloc, alloc_zeroed, dealloc, realloc, Layout};

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

#[test]
fn blocks_pass_between_threads() {
    let (send, receive) = std::sync::mpsc::channel::<Vec<usize>>();
    let senders: Vec<_> = (0..4)
        .map(|thread| {
            let send = send.clone();
            std::thread::spawn(move || (0..1000).for_each(|i| send.send(vec![thread; i % 300]).unwrap()))
        })
        .collect();
    drop(send);
    let sum: usize = receive.iter().map(|block| block.len()).sum();
    senders.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(sum, 4 * (0..1000).map(|i| i % 300).sum::<usize>());
}

#[test]
fn alignments_hold() {
    for shift in 0..=16 {
        for size in [1, 24, 1000, 70_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            // SAFETY: each block is freed with the layout that it has.
            unsafe {
                let zeroed = alloc_zeroed(layout);
                assert_eq!(zeroed as usize % layout.align(), 0);
                assert!((0..size).all(|i| *zeroed.add(i) == 0));
                dealloc(zeroed, layout);
                let block = alloc(layout);
                block.write_bytes(7, size);
                let grown = realloc(block, layout, size * 3);
                assert_eq!(grown as usize % layout.align(), 0);
                assert!((0..size).all(|i| *grown.add(i) == 7));
                dealloc(grown, Layout::from_size_align(size * 3, layout.align()).unwrap());
            }
        }
    }
}
