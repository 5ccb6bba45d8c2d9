//! How fast the event loop is: whole traces through one engine, counts asserted before timing.
//!
//! `cargo bench --no-default-features --bench event_loop`
//!
//! Step times are REF-AFFINE: 13.5 ms + 0.0643 ms a token, + 27.2 ns a context token (70B on four
//! H100). Every line is the best of several runs, in time on a core
//! where the kernel tells it, so that the machine need not be idle.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::Arc;

use firstlight_core::schedule::{
    Engine, FirstToken, FleetSpec, LinkSpec, NEVER, PoolSpec, Role, StepTable, Stop,
};

/// Azure LLM inference 2023, conversation: (arrival [ps], prompt, answer).
type Rows = Vec<(u64, u32, u32)>;

fn main() {
    let hour = azure_hour();
    assert_eq!(hour.len(), 19_366, "the whole hour");
    let copies: Rows = (0..52u64)
        .flat_map(|lap| {
            hour.iter().map(move |&(at, isl, osl)| (at + lap * 3_510 * 1_000_000_000_000, isl, osl))
        })
        .collect();
    assert_eq!(copies.len(), 1_007_032);
    println!(
        "{:34}{:>10}{:>9}{:>12}{:>11}{:>12}",
        "", "requests", "events", "steps", "best", "ns/event"
    );
    report("conversation hour, budget 2048", &hour, 2048, 30);
    report("conversation hour, budget 512", &hour, 512, 30);
    report("conversation hour, budget 8192", &hour, 8192, 30);
    report("52 laps of the hour, budget 2048", &copies, 2048, 3);
}

fn report(name: &str, rows: &Rows, budget: u64, runs: u32) {
    let fleet = fleet(budget);
    let tokens: u64 = rows.iter().map(|&(_, _, osl)| u64::from(osl)).sum();
    let mut best = f64::INFINITY;
    let (mut events, mut steps) = (0, 0);
    for _ in 0..runs {
        let mut engine = Engine::new(fleet.clone()).expect("a valid fleet");
        for &(at, isl, osl) in rows {
            engine.push(at, isl, 0, osl).expect("a valid request");
        }
        let start = core_s();
        let stop = engine.advance(NEVER, u64::MAX);
        best = best.min(core_s() - start);
        assert_eq!(stop, Stop::Reached);
        let counters = engine.counters()[0];
        assert_eq!(counters.emitted_tok, tokens, "every token comes out");
        assert_eq!(counters.blocks_taken, counters.blocks_freed, "every block is given back");
        assert!(engine.requests().last_ps.iter().all(|&at| at < NEVER), "every request is served");
        (events, steps) = (engine.events(), counters.steps);
    }
    println!(
        "{name:34}{:>10}{events:>9}{steps:>12}{:>8.2} ms{:>9.1} ns{:>8.2} Gtok/s generated",
        rows.len(),
        best * 1e3,
        best * 1e9 / events as f64,
        tokens as f64 / best / 1e9,
    );
}

fn fleet(token_budget: u64) -> FleetSpec {
    let (max_tok, max_seqs) = (8192_u64, 256_usize);
    let mut linear_ps: Vec<u64> = (0..=max_tok).map(|m| 13_500_000_000 + 64_300_000 * m).collect();
    linear_ps[0] = 0;
    let (by_tok, by_seq) = (vec![0; linear_ps.len()], vec![0; max_seqs + 1]);
    let table = StepTable {
        linear_ps,
        head_ps: by_seq.clone(),
        prefill_attn_floor_ps: 0,
        prefill_attn_pair_fs: by_tok.clone(),
        decode_attn_floor_ps: by_seq.clone(),
        decode_attn_ctx_ps: vec![27_200; max_seqs + 1],
        mix_1024: 1024,
        linear_pj: by_tok.clone(),
        head_pj: by_seq.clone(),
        prefill_attn_pair_fj: by_tok,
        decode_attn_floor_pj: by_seq.clone(),
        decode_attn_ctx_pj: by_seq,
    };
    FleetSpec {
        pools: vec![PoolSpec {
            role: Role::Mixed,
            replicas: 2,
            table: Arc::new(table),
            token_budget,
            max_seqs: 256,
            kv_blocks: 60_000,
            watermark_blocks: 0,
        }],
        block_tok: 16,
        link: LinkSpec { tok_ps: 0, latency_ps: 0 },
        first_token: FirstToken::Prefill,
    }
}

/// Seconds this thread has been on a core, or on the wall where the kernel does not tell.
fn core_s() -> f64 {
    std::thread::yield_now(); // makes the kernel bring its account up to date
    let on_core = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    on_core.map_or_else(wall_s, |ns| ns * 1e-9)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the wall clock")]
fn wall_s() -> f64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0.0, |wall| wall.as_secs_f64())
}

/// The trace as the package ships it: a NumPy archive of gaps in ticks and lengths.
fn azure_hour() -> Rows {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/python/firstlight/workload/data/azure-2023-conv.npz");
    let archive = std::fs::read(path).expect("the shipped trace");
    let tick = member(&archive, "tick_ps.npy")[0];
    let mut at = 0;
    member(&archive, "gap_ticks.npy")
        .into_iter()
        .zip(member(&archive, "isl_tok.npy"))
        .zip(member(&archive, "osl_tok.npy"))
        .map(|((gap, isl), osl)| {
            at += gap * tick;
            (at, small(isl), small(osl))
        })
        .collect()
}

fn small(value: u64) -> u32 {
    u32::try_from(value).expect("a length")
}

/// One unsigned column of a deflated `.npz`.
fn member(archive: &[u8], name: &str) -> Vec<u64> {
    let word = |at: usize, bytes: usize| {
        (0..bytes).rev().fold(0_usize, |sum, i| sum << 8 | usize::from(archive[at + i]))
    };
    let end = archive.windows(4).rposition(|w| w == b"PK\x05\x06").expect("a zip archive");
    let mut entry = word(end + 16, 4);
    for _ in 0..word(end + 10, 2) {
        let (packed, name_len) = (word(entry + 20, 4), word(entry + 28, 2));
        let local = word(entry + 42, 4);
        if &archive[entry + 46..entry + 46 + name_len] == name.as_bytes() {
            let data = local + 30 + word(local + 26, 2) + word(local + 28, 2);
            let raw = miniz_oxide::inflate::decompress_to_vec(&archive[data..data + packed])
                .expect("a deflated member");
            return numbers(&raw);
        }
        entry += 46 + name_len + word(entry + 30, 2) + word(entry + 32, 2);
    }
    panic!("no member {name}");
}

/// The values of a little-endian unsigned `.npy` file.
fn numbers(raw: &[u8]) -> Vec<u64> {
    let header = usize::from(raw[8]) + 256 * usize::from(raw[9]);
    let text = std::str::from_utf8(&raw[10..10 + header]).expect("an npy header");
    let at = text.find("<u").map(|at| at + 1).expect("an unsigned type") + 1;
    let bytes: usize = text[at..=at].parse().expect("a width");
    raw[10 + header..]
        .chunks_exact(bytes)
        .map(|chunk| chunk.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
        .collect()
}
