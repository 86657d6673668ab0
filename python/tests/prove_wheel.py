"""Proves an installed wheel: its libraries are its own, and a put, a get and a lookup work. Run by `./dev wheel`, not by pytest."""

import pathlib
import subprocess
import sys

import tenure

# What manylinux lets a wheel take from the system.
SYSTEM_LIBRARIES = ("linux-vdso", "libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux")


def check_libraries():
    package = pathlib.Path(tenure.__file__).parent
    bundled = (package.parent / "tenure.libs").resolve()
    checked = 0
    for library in [*package.glob("_native*.so"), *bundled.glob("*.so*")]:
        for line in subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout.splitlines():
            name, _, path = line.strip().partition(" => ")
            place = pathlib.Path(path.split(" (")[0]).resolve()
            if not any(system in name for system in SYSTEM_LIBRARIES) and place.parent != bundled:
                sys.exit(f"{library.name} takes {line.strip()} from the system; the wheel must bring it")
            checked += 1
    return checked, len(list(bundled.glob("*.so*")))


def check_package():
    with tenure.EmbeddedPool("1MiB", slab_bytes="64KiB") as pool:
        name_space = pool.open_namespace(tenure.namespace_prefix("model", 0))
        chain = tenure.HashChain("sha256_cbor", 16, tenure.none_hash("sha256_cbor"))
        chain.append(range(64))
        keys = [(name_space, value) for value in chain.hashes]
        assert pool.put(keys, [b"kv"] * 4) == [tenure.PutAnswer.STORED] * 4
        buffer = bytearray(2)
        assert pool.get(keys[:1], [buffer]) == [tenure.KeyAnswer.PRESENT] and buffer == b"kv"
        config = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
        assert tenure.Lookup(config, pool, [[name_space]]).find(chain.hashes, 64).length == 48


links, libraries = check_libraries()
check_package()
print(f"wheel: put, get and lookup work; {links} links checked, {libraries} libraries bundled")
