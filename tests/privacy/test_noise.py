"""Test the density of the noise and the rules for seeds."""

from __future__ import annotations

import ast
import os
import secrets
from pathlib import Path

import numpy as np
import pytest
from randomgen import ChaCha
from scipy import integrate

import convexmarket
from convexmarket.errors import ParameterError, PrivacyLeakWarning
from convexmarket.privacy import Simulation, noise_assumption, resolve_generator
from convexmarket.privacy.random_sources import gamma_sphere_log_density, secure_generator
from tests import parsed
from tests.privacy.builders import check_gamma_sphere


@pytest.mark.parametrize("n_features", [1, 3, 5, 30])
def test_norms_are_gamma_and_directions_uniform_and_independent(n_features: int) -> None:
    check_gamma_sphere(n_features, 1000, least_p=1e-4)


@pytest.mark.parametrize("n_features", [1, 2, 3, 6])
def test_the_density_integrates_to_one_over_spheres(n_features: int) -> None:
    area = {1: 2.0, 2: 2 * np.pi, 3: 4 * np.pi, 6: np.pi**3}[n_features]

    def shell(radius: float) -> float:
        density = np.exp(gamma_sphere_log_density(radius, n_features))
        return area * radius ** (n_features - 1) * density

    assert integrate.quad(shell, 0, np.inf)[0] == pytest.approx(1.0, rel=1e-7)


def chacha20_block(key: int, counter: int) -> list[int]:
    """Compute a ChaCha20 block from the definition, as eight 64-bit words."""
    words = [(key >> (32 * i)) & 0xFFFFFFFF for i in range(8)]
    count = [(counter >> (32 * i)) & 0xFFFFFFFF for i in range(4)]
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *words, *count]
    state = start.copy()

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            mixed = state[z] ^ state[x]
            state[z] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, column + 4, column + 8, column + 12)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    mixed = [(a + b) & 0xFFFFFFFF for a, b in zip(state, start, strict=True)]
    return [mixed[i] | mixed[i + 1] << 32 for i in range(0, 16, 2)]


def test_the_block_function_gives_the_published_block() -> None:
    keystream = b"".join(word.to_bytes(8, "little") for word in chacha20_block(0, 0))
    assert keystream[:16].hex() == "76b8e0ada0f13d90405d6ae55386bd28"  # RFC 8439, A.1


@pytest.mark.parametrize("key", [0, 1, 1 << 255, int("9e3779b97f4a7c15" * 4, 16)])
def test_the_secure_stream_is_chacha20_with_the_whole_key(key, monkeypatch) -> None:
    request = []
    monkeypatch.setattr(secrets, "randbits", lambda bits: request.append(bits) or key)
    generator = secure_generator().bit_generator
    assert isinstance(generator, ChaCha)
    expected = [word for counter in range(3) for word in chacha20_block(key, counter)]
    assert generator.random_raw(24).tolist() == expected
    assert request == [256]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is not available")
def test_processes_do_not_share_a_stream() -> None:
    """Check that processes have different seeds. Generators created before a fork repeat draws."""
    before, draws = secure_generator(), []
    for _ in range(2):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, np.array([resolve_generator().random(), before.random()]).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        draws.append(np.frombuffer(os.read(reader, 16)))
        os.close(reader)
        os.close(writer)
    assert draws[0][0] != draws[1][0]
    assert draws[0][1] == draws[1][1]


def unseeded(source: str) -> list[int]:
    """Return the line numbers of calls of unseeded generators of NumPy or ``random``."""
    result = []
    for node in ast.walk(parsed(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        makes = node.func.attr in ("default_rng", "RandomState", "SeedSequence", "Random")
        nothing = not (node.args or node.keywords)
        if (makes and nothing) or (
            node.func.attr[0].islower()
            and node.func.attr != "default_rng"
            and ast.unparse(node.func.value) in ("np.random", "numpy.random", "random")
        ):
            result.append(node.lineno)
    return result


PACKAGE = Path(convexmarket.__file__).parent


def test_no_module_draws_from_an_unseeded_generator() -> None:
    modules = sorted(PACKAGE.rglob("*.py"))
    result = {str(m): unseeded(m.read_text(encoding="utf-8")) for m in modules}
    assert len(result) > 50
    assert not {name: lines for name, lines in result.items() if lines}


@pytest.mark.parametrize("bad", ["seed", 1.5, -1, True])
def test_an_invalid_seed_is_refused(bad) -> None:
    with pytest.raises(ParameterError, match="random_state"):
        resolve_generator(bad, protective=False)


def test_a_random_state_provides_256_bits() -> None:
    """Check that seeds have eight 32-bit words, which differ between 300 random states."""
    seeds = [
        resolve_generator(
            np.random.RandomState(seed), protective=False
        ).bit_generator.seed_seq.entropy
        for seed in range(300)
    ]
    words = np.array(seeds, dtype=np.uint64)
    assert words.shape == (300, 8)
    assert words.max() > 0.99 * 2**32
    assert words.min() < 0.01 * 2**32
    assert np.unique(words).size > 0.99 * words.size


@pytest.mark.parametrize(
    "make", [int, np.int64, np.random.SeedSequence, np.random.default_rng, np.random.RandomState]
)
def test_seeded_noise_gives_a_warning_unless_it_is_a_simulation(make) -> None:
    with pytest.warns(PrivacyLeakWarning, match=r"random_state is of type .*Simulation"):
        careless = resolve_generator(make(3))
    assert resolve_generator(Simulation(make(3))).random() == careless.random()
    assert "SIMULATION" in noise_assumption(Simulation(make(3)))
    assert "SIMULATION" not in noise_assumption(make(3))
