//! The memory allocator hakmem as Rust's global allocator.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
//!
//! let numbers: Vec<u64> = (0..1000).collect();
//! assert_eq!(numbers.iter().sum::<u64>(), 499_500);
//! ```
//!
//! It serves what Rust allocates. C code in the same program keeps libc's `malloc`. The options of the environment
//! (`HAKMEM_PROFILE=lean` and others) are hakmem's. The feature `secure` makes the preset `secure` the default; the feature
//! `stats` adds statistics and heap profiles.
#![warn(missing_docs)]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, CString};
use std::io;
use std::os::raw::{c_char, c_int, c_void};

mod ffi {
    use super::*;
    extern "C" {
        pub fn hak_malloc(size: usize) -> *mut c_void;
        pub fn hak_calloc(count: usize, size: usize) -> *mut c_void;
        pub fn hak_realloc(block: *mut c_void, size: usize) -> *mut c_void;
        pub fn hak_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
        pub fn hak_free(block: *mut c_void);
        pub fn hak_trim(keep_bytes: usize) -> c_int;
        pub fn hak_option_set(name: *const c_char, value: *const c_char) -> c_int;
        pub fn hak_option_get(name: *const c_char, value: *mut c_char, size: usize) -> c_int;
        pub fn hak_version() -> *const c_char;
        #[cfg(feature = "stats")]
        pub fn hak_stats_get(out: *mut Stats) -> c_int;
        #[cfg(feature = "stats")]
        pub fn hak_process_stats_get(out: *mut ProcessStats);
        #[cfg(feature = "stats")]
        pub fn hak_profile_start(interval_bytes: usize) -> c_int;
        #[cfg(feature = "stats")]
        pub fn hak_profile_stop() -> c_int;
        #[cfg(feature = "stats")]
        pub fn hak_profile_dump(path: *const c_char) -> c_int;
    }
}

#[cfg(feature = "stats")]
include!(concat!(env!("OUT_DIR"), "/rows.rs"));

/// The allocator, for `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

/// Blocks of every size have this alignment.
const ALIGNMENT: usize = 16;

// SAFETY: hakmem's functions fulfil the contract of malloc, calloc, realloc, aligned_alloc and free, from any thread, and
// do not unwind.
unsafe impl GlobalAlloc for Hakmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            ffi::hak_malloc(layout.size()).cast()
        } else {
            ffi::hak_aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return ffi::hak_calloc(1, layout.size()).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            block.write_bytes(0, layout.size());
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        ffi::hak_free(block.cast());
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return ffi::hak_realloc(block.cast(), size).cast();
        }
        let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(block, layout.size().min(size));
            self.dealloc(block, layout);
        }
        moved
    }
}

fn checked(error: c_int) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// The version and the build: "hakmem 0.1.0 (...)".
///
/// ```
/// assert!(hakmem::version().starts_with("hakmem "));
/// ```
pub fn version() -> &'static str {
    // SAFETY: the text is static.
    unsafe { CStr::from_ptr(ffi::hak_version()) }.to_str().unwrap_or("hakmem")
}

/// Gives free memory back to the kernel but for about `keep_bytes`. Returns whether there was any.
///
/// ```
/// hakmem::trim(0);
/// ```
pub fn trim(keep_bytes: usize) -> bool {
    // SAFETY: any thread may call it at any time.
    unsafe { ffi::hak_trim(keep_bytes) != 0 }
}

/// Sets an option while the program runs; `None` returns it to the preset's value.
///
/// ```
/// hakmem::set_option("purge_delay_ms", Some("500"))?;
/// assert_eq!(hakmem::option("purge_delay_ms")?, "500");
/// assert!(hakmem::set_option("no_such_option", None).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_option(name: &str, value: Option<&str>) -> io::Result<()> {
    let name = c_string(name)?;
    let value = value.map(c_string).transpose()?;
    let value = value.as_ref().map_or(std::ptr::null(), |value| value.as_ptr());
    // SAFETY: both texts end with 0, and live until the call returns.
    checked(unsafe { ffi::hak_option_set(name.as_ptr(), value) })
}

/// The value of an option in force.
///
/// ```
/// # std::env::remove_var("HAKMEM_PROFILE");
/// let expected = if cfg!(feature = "secure") { "secure" } else { "balanced" };
/// assert_eq!(hakmem::option("profile")?, expected);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn option(name: &str) -> io::Result<String> {
    let name = c_string(name)?;
    let mut value = [0u8; 4096]; // a path
    // SAFETY: hakmem writes a text that ends with 0 into `value`, or nothing.
    checked(unsafe { ffi::hak_option_get(name.as_ptr(), value.as_mut_ptr().cast(), value.len()) })?;
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&value[..end]).into_owned())
}

/// What the allocator holds and has done. EBUSY where it would have to wait for its own caller.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
///
/// let block = vec![1u8; 10 << 20];
/// assert!(hakmem::stats()?.live_bytes >= block.len() as u64);
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(feature = "stats")]
pub fn stats() -> io::Result<Stats> {
    let mut out = Stats::default();
    // SAFETY: the struct is the one of the header that the library was built with.
    checked(unsafe { ffi::hak_stats_get(&mut out) })?;
    Ok(out)
}

/// The process as the kernel sees it.
///
/// ```
/// assert!(hakmem::process_stats().rss_bytes > 0);
/// ```
#[cfg(feature = "stats")]
pub fn process_stats() -> ProcessStats {
    let mut out = ProcessStats::default();
    // SAFETY: as stats.
    unsafe { ffi::hak_process_stats_get(&mut out) };
    out
}

/// Heap profiles, for `go tool pprof`.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;
///
/// hakmem::profile::start(1)?;
/// let blocks: Vec<String> = (0..100).map(|i| i.to_string()).collect();
/// let path = std::env::temp_dir().join(format!("hakmem-doc-{}.pb.gz", std::process::id()));
/// hakmem::profile::dump(&path)?;
/// hakmem::profile::stop()?;
/// assert!(std::fs::read(&path)?.starts_with(&[0x1f, 0x8b]));
/// std::fs::remove_file(&path)?;
/// # drop(blocks);
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(feature = "stats")]
pub mod profile {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// Begins an empty profile, with one sample for each `interval_bytes`; 0: 512 KiB, 1: every allocation.
    pub fn start(interval_bytes: usize) -> io::Result<()> {
        // SAFETY: any thread may call it.
        checked(unsafe { ffi::hak_profile_start(interval_bytes) })
    }

    /// Writes the profile to a file.
    pub fn dump(path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        // SAFETY: the text ends with 0 and lives until the call returns.
        checked(unsafe { ffi::hak_profile_dump(path.as_ptr()) })
    }

    /// Ends the sampling; what was sampled can still be written.
    pub fn stop() -> io::Result<()> {
        // SAFETY: any thread may call it.
        checked(unsafe { ffi::hak_profile_stop() })
    }
}
