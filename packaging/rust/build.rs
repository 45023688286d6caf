//! Builds the C sources with their own CMake files, and writes the structs of the figures from the table in the header.

use std::{env, fs, path::Path};

fn main() {
    println!("cargo:rerun-if-changed=c");
    let stats = env::var_os("CARGO_FEATURE_STATS").is_some();
    let secure = env::var_os("CARGO_FEATURE_SECURE").is_some();
    let built = cmake::Config::new("c")
        .profile("Release")
        .define("HAKMEM_OBSERVE", if stats { "ON" } else { "OFF" })
        .define("HAKMEM_DEFAULT_PROFILE", if secure { "secure" } else { "balanced" })
        .define("HAKMEM_CXX", "OFF")
        .define("HAKMEM_JEMALLOC", "OFF")
        .define("HAKMEM_TOOLS", "OFF")
        .define("HAKMEM_TESTS", "OFF")
        .define("HAKMEM_BENCH", "OFF")
        .define("HAKMEM_INSTALL", "OFF")
        .define("HAKMEM_WERROR", "OFF")
        .build_target("hakmem_core")
        .build();
    println!("cargo:rustc-link-search=native={}", built.join("build/lib").display());
    println!("cargo:rustc-link-lib=static=hakmem_core");
    if stats {
        let header = fs::read_to_string("c/include/hakmem/stats.h").expect("the header of the figures");
        let text = structs(&header);
        let out = env::var_os("OUT_DIR").expect("cargo sets it");
        fs::write(Path::new(&out).join("rows.rs"), text).expect("a file in OUT_DIR");
    }
}

/// The tables are `#define HAK_..._ROWS(ROW)` with rows `ROW(GROUP, name, KIND, UNIT, "Sentence.")`.
fn structs(header: &str) -> String {
    let mut text = String::new();
    for (table, name, sentence) in [
        ("STATS", "Stats", "What the allocator holds and has done."),
        ("PROCESS_STATS", "ProcessStats", "The process as the kernel sees it."),
    ] {
        text += &format!("/// {sentence}\n#[repr(C)]\n#[non_exhaustive]\n#[derive(Clone, Copy, Debug, Default)]\npub struct {name} {{\n");
        let define = format!("#define HAK_{table}_ROWS(ROW)");
        let rows = header.split(&define).nth(1).expect("the table").split("\n\n").next().expect("its rows");
        for row in rows.split("ROW(").skip(1) {
            let field = row.split(", ").nth(1).expect("a name");
            let sentence = row.split('"').nth(1).expect("a sentence");
            text += &format!("    /// {sentence}\n    pub {field}: u64,\n");
        }
        text += "}\n";
    }
    text
}
