//! How fast the event loop is: whole traces through one engine, counts asserted before timing.
//!
//! `cargo bench --no-default-features --bench event_loop [-- PART OF A NAME]`
//!
//! Step times are REF-AFFINE: 13.5 ms + 0.0643 ms a token, + 27.2 ns a context token (70B on four
//! H100). Every line is the best of several runs, in time on a core
//! where the kernel tells it, so that the machine need not be idle.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::Arc;

use firstlight_core::schedule::{
    CacheSpec, Disaggregation, Engine, FirstToken, FleetSpec, LinkSpec, NEVER, Policy, PoolSpec,
    Role, Routing, StepTable, Stop, TierSpec,
};

/// One request of a trace.
#[derive(Clone)]
struct Row {
    at: u64,
    isl: u32,
    osl: u32,
    units: Vec<u32>,
}

fn main() {
    let hour = azure_hour();
    assert_eq!(hour.len(), 19_366, "the whole hour");
    let lap_ps = 3_510 * 1_000_000_000_000;
    let laps: Vec<Row> = (0..52u64)
        .flat_map(|lap| {
            hour.iter().map(move |row| Row { at: row.at + lap * lap_ps, ..row.clone() })
        })
        .collect();
    assert_eq!(laps.len(), 1_007_032);
    let mooncake = mooncake_conversation();
    assert_eq!(mooncake.len(), 12_031);
    println!(
        "{:40}{:>9}{:>9}{:>11}{:>12}{:>9}",
        "", "requests", "events", "steps", "on a core", "an event"
    );
    report("conversation hour, budget 2048", &hour, &fleet(2048, 2), 30);
    report("conversation hour, budget 512", &hour, &fleet(512, 2), 30);
    report("conversation hour, budget 8192", &hour, &fleet(8192, 2), 30);
    for unit_tok in [512, 16] {
        let name = format!("the same, everything on, {unit_tok}-tok units");
        report(&name, &named(&hour, unit_tok), &everything(unit_tok, 2), 30);
    }
    report("52 laps of the hour, budget 2048", &laps, &fleet(2048, 2), 3);
    report("Mooncake conversation, cached, 16", &mooncake, &cached(fleet(8192, 16)), 10);
}

fn report(name: &str, rows: &[Row], fleet: &FleetSpec, runs: u32) {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    if wanted.is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let tokens: u64 = rows.iter().map(|row| u64::from(row.osl)).sum();
    let mut best = f64::INFINITY;
    let (mut events, mut steps) = (0, 0);
    for _ in 0..runs {
        let mut engine = Engine::new(fleet.clone()).expect("a valid fleet");
        for row in rows {
            engine.push(row.at, row.isl, 0, row.osl).expect("a valid request");
            engine.name_units(&row.units).expect("valid units");
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
        "{name:40}{:>9}{events:>9}{steps:>11}{:>9.2} ms{:>6.1} ns{:>6.2} Gtok/s generated",
        rows.len(),
        best * 1e3,
        best * 1e9 / events as f64,
        tokens as f64 / best / 1e9,
    );
}

fn cached(mut fleet: FleetSpec) -> FleetSpec {
    fleet.unit_tok = 512;
    fleet.routing = Routing::PrefixAware { weight_1024: 1024, credit_1024: [1024, 768, 256] };
    fleet.pools[0].cache = Some(CacheSpec::default());
    fleet
}

/// Unshared units for every prompt: the cache has all the work and none of the gain.
fn named(rows: &[Row], unit_tok: u32) -> Vec<Row> {
    let mut fresh = 0;
    let name = |row: &Row| {
        let count = row.isl / unit_tok;
        fresh += count;
        Row { units: (fresh - count..fresh).collect(), ..row.clone() }
    };
    rows.iter().map(name).collect()
}

/// Block KV, prefix cache in three tiers, energy, and tables with every part of a step.
fn everything(unit_tok: u32, replicas: u32) -> FleetSpec {
    let mut fleet = cached(fleet(2048, replicas));
    fleet.unit_tok = u64::from(unit_tok);
    let tier = TierSpec {
        units: 100_000,
        read_tok_ps: 6_000_000,
        latency_ps: 10_000_000,
        read_tok_pj: 20_000,
        write_tok_pj: 20_000,
    };
    let pool = &mut fleet.pools[0];
    pool.cache = Some(CacheSpec { tiers: [tier, tier], reused_only: false });
    let mut table = StepTable::clone(&pool.table);
    table.prefill_attn_floor_ps = 1_000_000_000;
    table.prefill_attn_pair_fs.fill(5_000_000);
    table.prefill_attn_pair_fj.fill(900_000);
    table.mix_1024 = 700;
    table.linear_pj.iter_mut().zip(0..).skip(1).for_each(|(pj, m)| {
        *pj = 9_000_000_000_000 + 60_000_000_000 * m;
    });
    table.head_pj.iter_mut().zip(0..).for_each(|(pj, n): (_, u64)| *pj = 900_000_000 * n);
    table.decode_attn_ctx_pj.iter_mut().skip(1).for_each(|pj| *pj = 15_000_000);
    pool.cap = Some(Arc::new(below_power(&table, 2_500)));
    pool.table = Arc::new(table);
    fleet
}

/// Times that keep the energy above idle of every step below `cap_w`.
fn below_power(table: &StepTable, cap_w: u64) -> StepTable {
    let time = |energy: &[u64]| energy.iter().map(|&pj| pj.div_ceil(cap_w)).collect();
    StepTable {
        linear_ps: time(&table.linear_pj),
        head_ps: time(&table.head_pj),
        prefill_attn_floor_ps: 0,
        prefill_attn_pair_fs: time(&table.prefill_attn_pair_fj),
        decode_attn_floor_ps: time(&table.decode_attn_floor_pj),
        decode_attn_ctx_ps: time(&table.decode_attn_ctx_pj),
        mix_1024: 1024,
        ..table.clone()
    }
}

fn fleet(token_budget: u64, replicas: u32) -> FleetSpec {
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
        mixed: None,
    };
    FleetSpec {
        pools: vec![PoolSpec {
            policy: Policy::Vllm { chunk_tok: 0 },
            role: Role::Mixed,
            replicas,
            table: Arc::new(table),
            token_budget,
            max_seqs: 256,
            kv_blocks: 60_000,
            watermark_blocks: 0,
            window_ps: 0,
            fill_tok: 0,
            cache: None,
            cap: None,
            speculation: None,
        }],
        block_tok: 16,
        link: LinkSpec { tok_ps: 0, latency_ps: 0, layers: 1 },
        first_token: FirstToken::Prefill,
        unit_tok: 16,
        routing: Routing::LeastLoad,
        disaggregation: Disaggregation::Always,
        governor: None,
        imitate_dynosim: false,
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

/// Azure LLM inference 2023, conversation, as the package ships it: gaps in ticks, and lengths.
fn azure_hour() -> Vec<Row> {
    let archive = read("python/firstlight/workload/data/azure-2023-conv.npz");
    let tick = member(&archive, "tick_ps.npy")[0];
    let mut at = 0;
    member(&archive, "gap_ticks.npy")
        .into_iter()
        .zip(member(&archive, "isl_tok.npy"))
        .zip(member(&archive, "osl_tok.npy"))
        .map(|((gap, isl), osl)| {
            at += gap * tick;
            Row { at, isl: small(isl), osl: small(osl), units: Vec::new() }
        })
        .collect()
}

/// Mooncake (FAST'25), conversation: 512-token units by chained hash, as steps between ids.
fn mooncake_conversation() -> Vec<Row> {
    let archive = read("tests/data/mooncake-conversation.npz");
    let isl = member(&archive, "isl_tok.npy");
    let (osl, count) = (member(&archive, "osl_tok.npy"), member(&archive, "unit_count.npy"));
    let mut step = member(&archive, "unit_step.npy").into_iter();
    let mut at = 0;
    let mut rows = Vec::new();
    for (row, gap) in member(&archive, "gap_ms.npy").into_iter().enumerate() {
        at += gap * 1_000_000_000;
        let isl = small(isl[row]);
        let mut id = 0_u32;
        let mut units: Vec<u32> = step
            .by_ref()
            .take(usize::try_from(count[row]).expect("a count"))
            .map(|step| {
                id = id.wrapping_add(small(step));
                id
            })
            .collect();
        units.truncate(isl as usize / 512);
        rows.push(Row { at, isl, osl: small(osl[row]), units });
    }
    rows
}

fn read(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).expect("a shipped trace")
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
