"""Measures every kind of pool in one run and prints the figures as ratios, and those with a limit beside it. Glue of `./dev bench-pools`.

From C++: the benchmark programs of the layers (in-process pool, daemon with one and four clients). From Python: the package's
pools, and Mooncake's own client, which has no other interface. Mooncake's segment lies in the client's process or in another,
over TCP. Everything listens on loopback or a Unix socket and ends with this program, however it ends.
"""

import argparse
import contextlib
import hashlib
import multiprocessing
import os
import pathlib
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
import types

from bench_store import BATCHES, MIB, OBJECT_BYTES, Mooncake, StoreClient, embedded_pool_figures, row_label, run_benchmarks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))

ROUNDS = 2
TIME_LIMIT_S = 330  # A round that would not end by then is not begun; the caller stops all a little later.
LAST_STEP_STARTS_S = 270  # On a busy machine the rest of a round is left out and said so.
KEYS = 20_000
WORKING_SET_BYTES = 256 * MIB
POOL = "1280MiB"  # Room in the index for the working set in the smallest objects.
SEGMENT_BYTES = 1024 * MIB
CLIENTS = 4
BLOCK = 16
LOOKUP_TOKENS = (32_768, 100_000, 1_000_000)
LOOKUP_SECONDS = 0.5
LOOKUP_OBJECT = bytes(64)
PUT_BATCH = 1000
STEP_TIMEOUT_S = 120

IN_PROCESS, DAEMON, DAEMON_4, OWN, OTHER = COLUMNS = ("in-process", "daemon", f"daemon x{CLIENTS}", "Mooncake own", "Mooncake other")


# --- one client, in a process of its own ------------------------------------------------------------------------------


class PoolClient(StoreClient):
    """A client of one of the package's pools."""

    def __init__(self, pool, prefix, **options):
        import tenure

        self.tenure = tenure
        self.pool = pool
        self.prefix = prefix
        self.name_space = pool.open_namespace(prefix)
        super().__init__(WORKING_SET_BYTES, KEYS, **options)
        pool.register_buffer(self.address, self.share_bytes)
        self.probe = pool.probe
        self.remove_all = pool.clear

    def key(self, index):
        return self.name_space, hashlib.sha256(index.to_bytes(8, "little", signed=True)).digest()

    def lease(self, keys):
        return self.pool.lease(keys, 10.0)[1]  # The handle goes at once, so this is a lease with its release.

    def put(self, keys, addresses, sizes):
        return self.pool.put_from(keys, [[address] for address in addresses], [[size] for size in sizes])

    def get(self, keys, addresses, sizes):
        return self.pool.get_into(keys, [[address] for address in addresses], [[size] for size in sizes])

    def good(self, operation, answer):
        return answer == (self.tenure.PutAnswer.STORED if operation == "put" else self.tenure.KeyAnswer.PRESENT)

    def clear(self, keys):
        self.remove_all()
        if self.tenure.KeyAnswer.PRESENT in self.pool.probe(keys):
            raise RuntimeError(f"{self.pool.name}: objects are left after all were removed")

    def lookups(self, is_exist=None):
        """Median seconds of a lookup of a prompt that is there as a whole, or by half, and of Mooncake's bare question for its load set."""
        figures = {}
        chain = [self.key(i) for i in range(LOOKUP_TOKENS[-1] // BLOCK)]
        self._first_alone(lambda: self._store(chain))
        rules = self.tenure.CacheConfig([self.tenure.GroupSpec("full", BLOCK)], hash_block_size=BLOCK, scheduler_block_size=BLOCK)
        lookup = self.tenure.Lookup(rules, self.pool, [[self.name_space]])
        for tokens in LOOKUP_TOKENS:
            hashes = [key[1] for key in chain[: tokens // BLOCK]]
            self._time_lookups(figures, lookup, tokens, hashes, len(hashes), is_exist)
            if tokens != LOOKUP_TOKENS[-1]:
                half = len(hashes) // 2
                absent = [self.key(-1 - i)[1] for i in range(len(hashes) - half)]
                self._time_lookups(figures, lookup, tokens, hashes[:half] + absent, half, is_exist)
        self.meet()
        return figures

    def _time_lookups(self, figures, lookup, tokens, hashes, hit_blocks, is_exist):
        """Lookup and bare question take turns, so that the machine's load is the same for both."""
        name = "" if hit_blocks == len(hashes) else " of half"
        names = [self.tenure.key_text(self.prefix, a_hash) for a_hash in hashes[:hit_blocks]]
        found, bare = [], []
        self.meet()
        end = time.perf_counter() + LOOKUP_SECONDS
        rounds_min = 5 if tokens == LOOKUP_TOKENS[-1] else 15
        while time.perf_counter() < end or len(found) < rounds_min:
            start = time.perf_counter()
            result = lookup.find(hashes, len(hashes) * BLOCK + 1)
            found.append(time.perf_counter() - start)
            if result.length != hit_blocks * BLOCK:
                raise RuntimeError(f"{self.pool.name}: a lookup hits {result.length} of {hit_blocks * BLOCK} tokens")
            del result
            if is_exist is not None:
                start = time.perf_counter()
                answers = is_exist(names)
                bare.append(time.perf_counter() - start)
                if answers.count(1) != len(names):
                    raise RuntimeError(f"Mooncake misses {len(names) - answers.count(1)} of {len(names)} keys of a prompt")
        figures["lookup" + name, tokens] = statistics.median(found)
        if bare:
            figures["bare" + name, tokens] = statistics.median(bare)

    def _store(self, chain):
        put = self.tenure.PutAnswer
        for first in range(0, len(chain), PUT_BATCH):
            part = chain[first : first + PUT_BATCH]
            parents = [None, *part[:-1]] if first == 0 else chain[first - 1 : first - 1 + len(part)]
            answers = self.pool.put(part, [LOOKUP_OBJECT] * len(part), parents=parents, kind="full")
            if any(answer is not put.STORED for answer in answers):
                raise RuntimeError(f"{self.pool.name}: a part of the prompt was not stored")


def measure_pool(pool, index=0, clients=1, meet=lambda: None):
    with pool:
        client = PoolClient(pool, "bench", index=index, clients=clients, meet=meet)
        figures = client.round() | client.lookups()
        client._first_alone(pool.clear)
        return {"Python": figures}


def measure_embedded(*turn):
    import tenure

    return measure_pool(tenure.EmbeddedPool(POOL), *turn)


def measure_daemon(socket_path, *turn):
    import tenure

    return measure_pool(tenure.DaemonPool(socket_path, call_deadline=30.0), *turn)


def measure_mooncake(bare_master, pool_master, segment_bytes, lease_seconds):
    """Mooncake's own client against the one master, then the package's pool and its lookups against the other."""
    import tenure
    from mooncake_processes import raw_client

    bare = Mooncake(bare_master, segment_bytes, WORKING_SET_BYTES, KEYS)
    figures = bare.round()
    bare.store.close()
    del bare
    config = tenure.MooncakeConfig(
        master_server_address=pool_master, metadata_server="P2PHANDSHAKE", protocol="tcp", local_hostname="127.0.0.1",
        mode="embedded" if segment_bytes else "standalone-store", global_segment_size=segment_bytes, local_buffer_size=64 * MIB,
    )
    timeouts = {"call_timeout": 30.0, "transfer_timeout": 30.0, "lease_ttl": lease_seconds}
    with tenure.MooncakePool(config, **timeouts) as pool:
        question = raw_client(types.SimpleNamespace(address=pool_master))
        client = PoolClient(pool, tenure.namespace_prefix("meta-llama/Llama-3.1-8B", 0))
        client.remove_all = lambda: question.remove_all(True)
        in_python = client.round() | client.lookups(question.batch_is_exist)
        question.close()
    for tokens in LOOKUP_TOKENS:
        figures["lookup", tokens] = in_python["bare", tokens]
    return {"native": figures, "Python": in_python}


def client_process(connection, log, measure, arguments):
    """A client's process: its figures or its error go through `connection`, and what libraries print into the log."""
    for stream in (1, 2):
        os.dup2(log_file := os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), stream)
        os.close(log_file)
    try:
        connection.send(measure(*arguments))
    except Exception as error:  # Whatever it is, the parent reports it.
        connection.send(f"{type(error).__name__}: {error}")


def answer_of(process, connection, measure):
    if not connection.poll(2 * STEP_TIMEOUT_S):
        raise RuntimeError(f"{measure.__name__}: a client does not end")
    try:
        answer = connection.recv()
    except EOFError:
        return "the client's process ended without an answer"
    process.join(10)
    return answer


def run_clients(work, measure, arguments=(), clients=1):
    """`clients` processes at one time; returns their figures, a list."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(clients, timeout=STEP_TIMEOUT_S)
    started = []
    for index in range(clients):
        ours, theirs = context.Pipe()
        turn = (index, clients, barrier.wait) if measure is not measure_mooncake else ()
        process = context.Process(
            target=client_process, args=(theirs, work / f"{measure.__name__}.log", measure, (*arguments, *turn)), daemon=True
        )
        process.start()
        theirs.close()
        started.append((process, ours))
    try:
        answers = [answer_of(process, ours, measure) for process, ours in started]
    finally:
        for process, _ in started:
            process.kill()
            process.join()
    errors = [answer for answer in answers if isinstance(answer, str)]
    if errors:
        raise RuntimeError(f"{measure.__name__}: {errors[0]}; see {work / measure.__name__}.log")
    return answers


# --- the worlds -------------------------------------------------------------------------------------------------------


def answers(path):
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextlib.contextmanager
def daemon(program, work):
    """A daemon; gives the path of its socket."""
    path = work / "pool.sock"
    with open(work / "daemon.log", "ab") as log:
        process = subprocess.Popen(
            [program, "serve", "--socket", path, "--memory", POOL], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 30
        while not answers(path):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"tenure serve does not listen; see {log.name}")
            select.select([], [], [], 0.05)
        yield str(path)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def all_clients(answers):
    """One figure from those of clients that ran together: the median of questions; of bytes, the time for all of them."""
    together = {}
    for key in answers[0]:
        value = statistics.median(answer[key] for answer in answers)
        together[key] = value / len(answers) if key[0] in ("put", "get") else value
    return together


def python_embedded(programs, work):
    return [(IN_PROCESS, "Python", run_clients(work, measure_embedded)[0]["Python"])]


def python_daemon(programs, work):
    worlds = []
    for column, clients in ((DAEMON, 1), (DAEMON_4, CLIENTS)):
        with daemon(programs / "tenure", work) as path:
            figures = run_clients(work, measure_daemon, (path,), clients)
        worlds.append((column, "Python", all_clients([of_one["Python"] for of_one in figures])))
    return worlds


def mooncake(column, work, segment_bytes):
    from mooncake_processes import LEASE_SECONDS, Master, Owner

    with contextlib.ExitStack() as ends:
        masters = [Master(work)]
        ends.callback(masters[0].stop)
        if segment_bytes:  # Else the pool's objects would also go to the segment of a client that has ended.
            masters.append(Master(work))
            ends.callback(masters[1].stop)
        else:
            ends.callback(Owner(masters[0], SEGMENT_BYTES).stop)
        arguments = (masters[0].address, masters[-1].address, segment_bytes, LEASE_SECONDS)
        return [(column, table, figures) for table, figures in run_clients(work, measure_mooncake, arguments)[0].items()]


def mooncake_own(programs, work):
    return mooncake(OWN, work, SEGMENT_BYTES)


def mooncake_other(programs, work):
    return mooncake(OTHER, work, 0)


def native_daemon(programs, work):
    """Beside the figures of the table some for the limits: their names end in "p99" or "of memcpy"."""
    figures = {DAEMON: {}, DAEMON_4: {}}
    sizes = "4096/100|262144/100|4194304/10"
    names = f"Probe/|LeaseAndRelease/|ProbeBesideStalledClients/|(Put|Get)/({sizes})/"
    for result in run_benchmarks(programs / "daemon_bench", names):
        operation, size, *rest = result["name"].split("/")
        into = figures[DAEMON_4 if f"threads:{CLIENTS}" in rest else DAEMON]
        if operation in ("Put", "Get"):
            into[operation.lower(), int(size)] = int(size) / (result["GB_per_s"] * 1e9)
            into[f"{operation.lower()} of memcpy", int(size)] = result["of_memcpy"]
        elif operation == "ProbeBesideStalledClients":
            into["stalled p99", int(size)] = result["p99_us"] * 1e-6
        else:
            name = {"Probe": "probe", "LeaseAndRelease": "lease"}[operation]
            into[name, int(size)] = result["median_us"] * 1e-6 / int(size)
            into[f"{name} p99", int(size)] = result["p99_us"] * 1e-6
    for result in run_benchmarks(programs / "cli_bench", "LookupOnDaemon/"):
        figures[DAEMON]["lookup", int(result["name"].split("/")[1])] = result["median_us"] * 1e-6
    return [(column, "native", figures[column]) for column in figures]


def native_embedded(programs, work):
    figures = embedded_pool_figures(programs / "store_bench")
    for result in run_benchmarks(programs / "store_bench", "BM_LeaseAndRelease/objects:1000000/"):
        figures["lease", int(result["name"].split("batch:")[1])] = 1 / result["items_per_second"]
    for result in run_benchmarks(programs / "connector_bench", "BM_LookupFull/tokens:(100000|1000000)/independent:0/stored:0"):
        figures["lookup", int(result["name"].split("tokens:")[1].split("/")[0])] = result["real_time"] * 1e-6
    return [(IN_PROCESS, "native", figures)]


# The last one takes longest and is in `./dev bench` too: it is what a busy machine leaves out.
WORLDS = (native_daemon, python_embedded, python_daemon, mooncake_own, mooncake_other, native_embedded)


# --- the report -------------------------------------------------------------------------------------------------------


def print_table(title, table, out):
    """Rows of figures, each with its ratio to that of the daemon with one client."""
    print(f"\n{title}\n", file=out)
    rows = [(operation, batch) for operation in ("probe", "lease") for batch in BATCHES]
    rows += [(operation, size) for operation in ("put", "get") for size in OBJECT_BYTES]
    rows += [("lookup", tokens) for tokens in LOOKUP_TOKENS]
    print(f"{'operation':<34}" + "".join(f"{column:>22}" for column in COLUMNS), file=out)
    for key in rows:
        label, unit, scale = row_label(*key)
        base = table[DAEMON].get(key)
        cells = []
        for column in COLUMNS:
            value = table[column].get(key)
            ratio = "" if value is None or base is None else f"{value / base:,.2f}x"
            cells.append(f"{'-' if value is None else f'{value * scale:,.1f}':>11}{ratio:>11}")
        print(f"{label:<25}{unit:<9}" + "".join(cells), file=out)


def print_limits(native, in_python, out):
    one, four = native.get(DAEMON, {}), native.get(DAEMON_4, {})

    def ratio(over, under):
        return over / under if over is not None and under is not None else None

    lookup, long_lookup = (one.get(("lookup", tokens)) for tokens in LOOKUP_TOKENS[1:])
    rows = [
        ("daemon: lookup of 100,000 tokens, us", lookup and lookup * 1e6, "<=", 300),
        ("daemon: lookup of 1,000,000 tokens, of that of 100,000", ratio(long_lookup, lookup), "<", 2),
        ("daemon: a request of one key, us (median)", one.get(("probe", 1)) and one["probe", 1] * 1e6, "<=", 30),
        ("daemon: p99 beside two stalled clients, of that alone", ratio(one.get(("stalled p99", 1)), one.get(("probe p99", 1))), "<=", 2),
    ]
    for figures, clients in ((one, "one client"), (four, "four clients")):
        for operation in ("put", "get"):
            for size in OBJECT_BYTES:
                if (figure := figures.get((f"{operation} of memcpy", size))) is not None:
                    label = f"daemon: {operation} of {size >> 10:,} KiB over 1 GiB, {clients}, % of memcpy"
                    # No limit where the request, not its bytes, is most of the time.
                    rows.append((label, figure * 100, ">=", 60 if size > OBJECT_BYTES[0] else None))
    for column in (OWN, OTHER):
        figures = in_python.get(column, {})
        for tokens in LOOKUP_TOKENS:
            value = ratio(figures.get(("lookup", tokens)), figures.get(("bare", tokens)))
            rows.append((f"{column} pool: lookup of {tokens:,} tokens, of a bare batch_is_exist", value, "<=", 1.3))
        for tokens, limit in zip(LOOKUP_TOKENS, (2.2, 1.5)):
            value = ratio(figures.get(("lookup of half", tokens)), figures.get(("bare of half", tokens)))
            rows.append((f"{column} pool: the same of a prompt of {tokens:,} tokens whose first half is there", value, "<=", limit))
    print(f"\n{'figure with a limit':<82}{'figure':>10}  limit", file=out)
    for label, value, relation, limit in rows:
        if value is None:
            print(f"{label:<82}{'-':>10}  NOT MEASURED", file=out)
            continue
        reached = limit is None or {"<=": value <= limit, "<": value < limit, ">=": value >= limit}[relation]
        bound = "-" if limit is None else f"{relation} {limit:<6} {'reached' if reached else 'MISSED'}"
        print(f"{label:<82}{value:>10,.2f}  {bound}", file=out)


class Stopped(Exception):
    """The caller asks for the end."""


def stop(*_):
    raise Stopped


def measure_round(programs, work, samples, start):
    """Every world once, their figures into `samples`; returns whether all were measured."""
    complete = True
    for world in WORLDS:
        if time.monotonic() - start > LAST_STEP_STARTS_S:
            print(f"bench-pools: {world.__name__} is left out, since {LAST_STEP_STARTS_S} s are over", file=sys.stderr)
            complete = False
            continue
        try:
            for column, table, figures in world(programs, work):
                for key, value in figures.items():
                    samples[table][column].setdefault(key, []).append(value)
            print(f"  {world.__name__} after {time.monotonic() - start:.0f} s", flush=True)
        except (AssertionError, KeyError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"bench-pools: {world.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
            complete = False
    return complete


def medians(rounds):
    return {column: {key: statistics.median(values) for key, values in figures.items()} for column, figures in rounds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, type=pathlib.Path, help="folder of tenure and the benchmark programs")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for logs and the socket")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)  # So that every process started here is ended, and what was measured is shown.
    arguments.work.mkdir(parents=True, exist_ok=True)
    for log in arguments.work.glob("*.log"):
        log.unlink()

    samples = {table: {column: {} for column in COLUMNS} for table in ("native", "Python")}
    start = time.monotonic()
    rounds, status = 0, 0
    try:
        # Another round only if it ends in time when it takes as long as those before.
        while rounds < ROUNDS and (time.monotonic() - start) * (rounds + 1) <= TIME_LIMIT_S * max(rounds, 1):
            rounds += 1
            print(f"round {rounds} of {ROUNDS}", flush=True)
            if not measure_round(arguments.programs, arguments.work, samples, start):
                status = 1
    except Stopped:
        print("bench-pools: stopped; the figures until then follow", file=sys.stderr)
        status = 143
    native, in_python = medians(samples["native"]), medians(samples["Python"])
    print(f"\nMedian of {rounds} round(s) in turns; each figure with its ratio to the daemon with one client. A lease of Tenure is timed with its")
    print("release. Puts and gets of Tenure compute and check a digest, Mooncake's do not; with four clients: the time for all together.")
    print_table("Tenure from C++ (1 GiB working set), Mooncake's own client from Python (256 MiB); its lookup is the bare question", native, sys.stdout)
    print_table("The Python package's pools (256 MiB working set); a Mooncake pool's segment in its own or in another process", in_python, sys.stdout)
    print_limits(native, in_python, sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
