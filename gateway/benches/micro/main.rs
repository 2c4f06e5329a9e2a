//! How many instructions the steps of a message take, each by itself: decode, resolve, seal, acknowledge, route, write, and
//! be done with. Counted by Valgrind, so the figures hardly depend on the machine, and a change of one percent is seen.
//!
//! Always holds: each function under measurement does one step many times, to what was prepared before; the name of a case
//! ends in `of_N`, and N is how often. `scripts/micro-bench` runs this and divides. What follows from a hash with a random
//! seed differs by less than a percent between runs; system calls and waiting are not in here, `bench` has those.

use gungraun::main;

mod acks;
mod decode;
mod fan_out;
mod ledger;
mod prepare;
mod record;
mod resolve;

use acks::acknowledging;
use decode::decoding;
use fan_out::delivering;
use ledger::partition_ledger;
use record::storing;
use resolve::resolving;

main!(
    library_benchmark_groups = [
        decoding,
        resolving,
        storing,
        acknowledging,
        partition_ledger,
        delivering
    ]
);
