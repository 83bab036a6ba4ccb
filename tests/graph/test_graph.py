"""Graphs, walks and routes: laws that every topology and every walk keeps."""

import importlib

import jax
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relaydp.graph as graphs
from relaydp.errors import InputError
from relaydp.graph import WALKS, Graph, graph_named, route

jax.config.update("jax_enable_x64", True)

TOPOLOGIES = {
    "pair": graphs.ring(2),
    "ring": graphs.ring(8),
    "path": graphs.path(7),
    "star": graphs.star(16),
    "complete": graphs.complete(6),
    "grid": graphs.grid(4, 3),
    "odd grid": graphs.grid(3, 5),
    "torus": graphs.torus(3, 5),
    "hypercube": graphs.hypercube(4),
    "erdos-renyi": graphs.erdos_renyi(32, 0.2),
    "watts-strogatz": graphs.watts_strogatz(20),
    "random-regular": graphs.random_regular(12),
    "petersen": graphs.from_networkx(nx.petersen_graph()),
    "lollipop": graphs.from_networkx(nx.lollipop_graph(5, 4)),
}
NO_CYCLE = {"path", "star", "odd grid", "petersen", "lollipop"}
KEY = jax.random.key(7)


@pytest.fixture(params=TOPOLOGIES.values(), ids=list(TOPOLOGIES))
def graph(request):
    return request.param


ROUTED = [(name, walk) for name in TOPOLOGIES for walk in WALKS if not (walk == "cyclic" and name in NO_CYCLE)]


@pytest.fixture(params=ROUTED, ids=[f"{name}-{walk}" for name, walk in ROUTED])
def routed(request):
    name, walk = request.param
    return TOPOLOGIES[name], walk


# Graphs


def test_edges_are_sorted_once_each_and_read_only(graph):
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    pairs = [tuple(edge) for edge in graph.edges.tolist()]
    assert pairs == sorted(set(pairs))
    with pytest.raises(ValueError):
        graph.edges[0, 0] = 1


def test_agrees_with_networkx(graph):
    other = graph.to_networkx()
    assert graph.degree.tolist() == [d for _, d in other.degree()]
    assert np.array_equal(graph.adjacency().toarray(), nx.to_numpy_array(other))
    assert np.array_equal(graph.laplacian().toarray(), nx.laplacian_matrix(other).toarray())
    for i in range(graph.agents):
        assert graph.neighbours(i).tolist() == sorted(other.neighbors(i))
        assert [graph.has_edge(i, j) for j in range(graph.agents)] == [
            other.has_edge(i, j) for j in range(graph.agents)
        ]
    assert graphs.from_networkx(other) == graph


def test_transition_is_a_walk_with_the_stated_law(graph):
    chances, law = graph.transition(), graph.stationary()
    assert np.allclose(chances.sum(axis=1), 1, atol=1e-14)
    by_hand = np.eye(graph.agents) - graph.laplacian().toarray() / graph.degree[:, None]
    assert np.allclose(chances.toarray(), by_hand, atol=1e-14)
    assert np.allclose(law @ chances.toarray(), law, atol=1e-14)
    assert np.abs(law - graph.stationary_of_paper()).max() < 1e-10  # lemma 1


def test_relabelling(graph):
    new = np.random.default_rng(0).permutation(graph.agents)
    renamed = graph.relabel(new)
    assert all(renamed.has_edge(new[i], new[j]) for i, j in graph.edges)
    assert np.allclose(renamed.stationary()[new], graph.stationary())
    assert renamed.relabel(np.argsort(new)) == graph


def test_equality_and_hash_go_by_edges():
    triangle = Graph("triangle", 3, np.array([[2, 1], [0, 1], [1, 0], [2, 0]]))
    assert triangle == graphs.ring(3) == graphs.complete(3)
    assert len({triangle, graphs.ring(3), graphs.path(3)}) == 2
    assert triangle != "ring(3)"
    assert repr(graphs.ring(8)) == "Graph(ring(8): 8 agents, 8 edges)"


@given(st.integers(2, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_edges_give_a_connected_graph_or_an_error(n, pairs):
    other = nx.Graph()
    other.add_nodes_from(range(n))
    other.add_edges_from(pairs)
    sound = len(other) == n and nx.is_connected(other) and all(i != j for i, j in pairs)
    if sound:
        graph = graphs.from_edges(pairs, agents=n)
        assert {tuple(edge) for edge in graph.edges.tolist()} == {(min(p), max(p)) for p in pairs}
        tour = graphs.tour(graph)
        assert set(tour.tolist()) == set(range(n)) and len(tour) <= 2 * (n - 1)
    else:
        with pytest.raises(InputError):
            graphs.from_edges(pairs, agents=n)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: Graph("g", 5, np.array([[0, 1], [2, 3]])), r"3 components .*0, 2, 4.*[Aa]dd edges"),
        (lambda: Graph("g", 3, np.array([[0, 1], [2, 2]])), r"edge \(2, 2\)"),
        (lambda: Graph("g", 3, np.array([[0, 1], [1, 3]])), r"outside 0\.\.2"),
        (lambda: Graph("g", 3, np.array([[0.0, 1.0]])), "whole numbers"),
        (lambda: Graph("g", 3, np.array([0, 1, 2])), r"shape \(3,\)"),
        (lambda: Graph("g", 0, np.zeros((0, 2), int)), "agents=0"),
        (lambda: graphs.from_edges([(0, 10**15)]), "wrong number"),
        (lambda: graphs.from_edges([(1, 2), (2, 3)]), "from 1"),
        (lambda: graphs.from_edges([]), "2 components"),
        (lambda: graphs.ring(1), "n=1"),
        (lambda: graphs.ring(4.0), "n=4.0"),  # pyright: ignore[reportArgumentType]
        (lambda: graphs.complete(10**6), "edges"),
        (lambda: graphs.grid(0, 3), "rows=0"),
        (lambda: graphs.erdos_renyi(40, 0.01), "raise the probability"),
        (lambda: graphs.erdos_renyi(40, 1.5), "probability=1.5"),
        (lambda: graphs.watts_strogatz(10, 3), "even"),
        (lambda: graphs.random_regular(5, 3), "even.*either by one"),
        (lambda: graphs.random_regular(8, 9), "7 others.*Lower degree or raise n"),  # one less would not do
        (lambda: graphs.random_regular(6, 1), "degree=3"),
        (lambda: graphs.from_networkx(nx.DiGraph([(0, 1)])), "undirected"),
        (lambda: graphs.ring(4).relabel([0, 0, 1, 2]), "permutation"),
        (lambda: graphs.ring(4).neighbours(4), r"0\.\.3"),
    ],
)
def test_what_cannot_be_a_graph_is_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_random_graphs_repeat_by_seed():
    for make in (lambda s: graphs.erdos_renyi(30, 0.2, s), lambda s: graphs.watts_strogatz(30, seed=s)):
        assert make(3) == make(3) != make(4)
    assert graphs.random_regular(20, 4, 1) == graphs.random_regular(20, 4, 1)
    assert (graphs.random_regular(20, 4).degree == 4).all()


def test_erdos_renyi_joins_pairs_at_its_rate():
    assert graphs.erdos_renyi(30, 1.0) == graphs.complete(30)
    pairs, p = 200 * 199 / 2, 0.1
    counts = [len(graphs.erdos_renyi(200, p, seed).edges) for seed in range(20)]
    assert abs(np.mean(counts) - p * pairs) < 4 * np.sqrt(pairs * p * (1 - p) / 20)


def test_a_large_ring_is_sparse():
    """A square array of it would take 320 GB."""
    graph = graphs.ring(200_000)
    assert graph.transition().nnz == 400_000
    assert len(route(graph, "cyclic", 1, key=KEY)) == 200_000
    assert len(route(graph, "random", 5, key=KEY)) < 200_000
    with pytest.raises(InputError, match="stationary()"):
        graph.stationary_of_paper()


def test_files_come_back_as_they_went(graph, tmp_path):
    nx.write_graphml(graph.to_networkx(), tmp_path / "a.graphml")
    lines = [f"{i} {j}  # an edge" for i, j in graph.edges]
    (tmp_path / "a.edges").write_text("# agents\n\n" + "\n".join(lines))
    (tmp_path / "a.csv").write_text("".join(f"{j},{i}\n" for i, j in graph.edges))
    for name in ("a.graphml", "a.edges", "a.csv"):
        assert graphs.read_graph(tmp_path / name) == graph
        assert graph_named(str(tmp_path / name), graph.agents).name == name


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("a.txt", "0 1\nsource target\n", "line 2"),
        ("a.txt", "# nothing\n", "no edges"),
        ("a.csv", "1,2\n2,3\n", "from 1"),
        ("a.graphml", "no markup", "not GraphML"),
        ("a.json", "{}", "suffix"),
        ("missing/a.txt", None, "check the path"),
        ("a.txt", b"\xff\xfe0 1", "text"),
    ],
)
def test_unreadable_files_are_refused(tmp_path, name, text, says):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=says):
        graphs.read_graph(tmp_path / name)


@pytest.mark.parametrize(
    "text, agents, expected",
    [
        ("ring", 8, graphs.ring(8)),
        ("path", 3, graphs.path(3)),
        ("star", 5, graphs.star(5)),
        ("complete", 4, graphs.complete(4)),
        ("grid", 12, graphs.grid(3, 4)),
        ("grid:4x8", 32, graphs.grid(4, 8)),
        ("grid:4x8", None, graphs.grid(4, 8)),
        ("torus", 16, graphs.torus(4, 4)),
        ("torus:2x8", 16, graphs.torus(2, 8)),
        ("hypercube", 8, graphs.hypercube(3)),
        ("hypercube:3", 8, graphs.hypercube(3)),
        ("erdos-renyi:0.3", 20, graphs.erdos_renyi(20, 0.3)),
        ("watts-strogatz", 20, graphs.watts_strogatz(20)),
        ("watts-strogatz:6,0.5", 20, graphs.watts_strogatz(20, 6, 0.5)),
        ("random-regular", 10, graphs.random_regular(10)),
        ("random-regular:4", 10, graphs.random_regular(10, 4)),
    ],
)
def test_command_line_names(text, agents, expected):
    assert graph_named(text, agents) == expected


@pytest.mark.parametrize(
    "text, agents, says",
    [
        ("rng", 8, "Did you mean 'ring'"),
        ("grid:4x8", 30, "32 agents, but agents=30"),
        ("hypercube", 12, "8 agents, but agents=12"),
        ("grid:4", 4, "grid:4x8"),
        ("ring:5", 5, "like 'ring'"),
        ("erdos-renyi:", 5, "erdos-renyi:0.3"),
        ("ring", None, "pass agents"),
        ("ring", 0, "agents=0"),
        ("missing.graphml", 3, "check the path"),
    ],
)
def test_command_line_refusals(text, agents, says):
    with pytest.raises(InputError, match=says):
        graph_named(text, agents)


def test_default_erdos_renyi_is_connected():
    assert graph_named("erdos-renyi", 50, seed=2).agents == 50


# Walks and routes


@pytest.mark.parametrize("rule", graphs.RULES)
def test_each_hop_follows_an_edge(routed, rule):
    graph, walk = routed
    taken = route(graph, walk, 4, key=KEY, start=1, rule=rule)
    assert taken.holder[0] == 1
    assert np.array_equal(taken.receiver[:-1], taken.holder[1:])
    stays = taken.holder == taken.receiver
    assert walk == "lazy" or not stays.any()
    assert graph.has_edges(taken.holder[~stays], taken.receiver[~stays]).all()
    assert taken.messages == (~stays).sum()


@pytest.mark.parametrize("rule", graphs.RULES)
def test_counts_keep_the_rules_promises(routed, rule):
    graph, walk = routed
    taken = route(graph, walk, 4, key=KEY, rule=rule)
    counts = taken.counts(graph.agents)
    assert taken.plf == counts.max() == 4
    if rule == "plan" or walk in ("cyclic", "tour"):
        assert (counts == 4).all()
    else:
        assert taken.acts.all() and (counts == 4).sum() == 1 and counts[taken.holder[-1]] == 4
    if walk == "cyclic":
        assert len(taken) == 4 * graph.agents and taken.acts.all()
    # activation is the running count of the holder's own earlier activations, acting or not
    made = np.zeros(graph.agents, int)
    for holder, acts, t in zip(taken.holder, taken.acts, taken.activation, strict=True):
        assert t == made[holder]
        made[holder] += acts
    assert taken.holder.dtype == taken.receiver.dtype == taken.activation.dtype == np.int32


def test_a_plan_is_spent_no_faster_than_the_hop_counter_allows(routed):
    graph, walk = routed
    if walk != "tour":
        taken = route(graph, walk, 5, key=KEY, rule="plan")
        acting = np.flatnonzero(taken.acts)
        assert (taken.activation[acting] <= acting // graph.agents).all()
        assert taken.acts[-1]


def test_one_key_one_route(routed):
    graph, walk = routed
    one, same, longer = (route(graph, walk, k, key=KEY) for k in (3, 3, 6))
    for name in ("holder", "receiver", "acts", "activation"):
        assert np.array_equal(getattr(one, name), getattr(same, name))
        assert np.array_equal(getattr(one, name), getattr(longer, name)[: len(one)])
    with pytest.raises(ValueError):
        one.holder[0] = 1


def test_routes_do_not_depend_on_the_default_precision():
    double = route(graphs.ring(8), "random", 50, key=KEY)
    with jax.enable_x64(False):
        single = route(graphs.ring(8), "random", 50, key=KEY)
    assert np.array_equal(double.holder, single.holder)


def test_different_keys_differ_and_blocks_join():
    graph = graphs.complete(6)
    routes = [route(graph, "nonbacktracking", 2000, key=jax.random.key(k)) for k in range(2)]
    assert not np.array_equal(routes[0].holder[:100], routes[1].holder[:100])
    assert len(routes[0]) > 4096  # more than the first block
    assert (routes[0].holder[2:] != routes[0].holder[:-2]).all()


def test_nonbacktracking_turns_back_only_at_dead_ends():
    graph = TOPOLOGIES["lollipop"]
    taken = route(graph, "nonbacktracking", 300, key=KEY)
    back = taken.holder[2:] == taken.holder[:-2]
    assert back.any() and (graph.degree[taken.holder[1:-1][back]] == 1).all()


@pytest.mark.parametrize("name", ["erdos-renyi", "star", "grid", "lollipop"])
@pytest.mark.parametrize("walk", ["random", "lazy"])
def test_visits_follow_the_stationary_law(name, walk):
    graph = TOPOLOGIES[name]
    taken = route(graph, walk, 8000, key=KEY)
    share = taken.counts(graph.agents) / len(taken)
    law = graph.stationary()
    # Visits are correlated, so these bounds are wider than a chi-square test of independent draws.
    assert np.abs(share / law - 1).max() < 0.15
    assert ((share - law) ** 2 / law).sum() < 0.002


def test_each_hop_is_uniform_over_the_neighbours():
    graph = graphs.complete(5)
    taken = route(graph, "random", 8000, key=KEY)
    seen = np.zeros((5, 5))
    np.add.at(seen, (taken.holder, taken.receiver), 1)
    expected = seen.sum(axis=1, keepdims=True) * graph.transition().toarray()
    off = ~np.eye(5, dtype=bool)
    assert ((seen - expected)[off] ** 2 / expected[off]).sum() < 37.7  # chi-square, 15 degrees, 1 in 1000
    lazy = route(graph, "lazy", 8000, key=KEY)
    assert abs(1 - lazy.messages / len(lazy) - 0.5) < 4 * 0.5 / np.sqrt(len(lazy))


CYCLIC = {name: graph for name, graph in TOPOLOGIES.items() if name not in NO_CYCLE} | {
    str(graph.name): graph
    for graph in (
        graphs.torus(5, 7),
        graphs.torus(7, 5),
        graphs.torus(2, 9),
        graphs.torus(4, 4),
        graphs.grid(2, 2),
        graphs.grid(9, 20),
        graphs.grid(20, 9),
        graphs.hypercube(1),
        graphs.hypercube(9),
        graphs.ring(50).relabel(np.random.default_rng(1).permutation(50)),
        graphs.grid(4, 6).relabel(np.random.default_rng(2).permutation(24)),
        graphs.hypercube(5).relabel(np.random.default_rng(3).permutation(32)),
        graphs.grid(300, 400),
    )
}


@pytest.mark.parametrize("graph", CYCLIC.values(), ids=CYCLIC.keys())
def test_cycle_is_hamiltonian(graph):
    order = graphs.cycle(graph)
    assert np.array_equal(np.sort(order), np.arange(graph.agents))
    assert graph.has_edges(order, np.roll(order, -1)).all()
    assert len(graphs.tour(graph)) == graph.agents


@pytest.mark.parametrize("name", sorted(NO_CYCLE))
def test_no_cycle_says_what_to_use_instead(name):
    with pytest.raises(InputError, match="walk='tour'"):
        route(TOPOLOGIES[name], "cyclic", 1, key=KEY)


def test_tour_is_closed_and_short(graph):
    tour = graphs.tour(graph)
    assert set(tour.tolist()) == set(range(graph.agents))
    assert graph.has_edges(tour, np.roll(tour, -1)).all()
    assert graph.agents <= len(tour) <= 2 * (graph.agents - 1)
    taken = route(graph, "tour", 3, key=KEY, start=graph.agents - 1)
    assert len(taken) == 3 * len(tour)
    lap = taken.holder[: len(tour)]
    assert np.array_equal(np.flatnonzero(taken.acts[: len(tour)]), np.sort(np.unique(lap, return_index=True)[1]))


def test_tour_lengths():
    assert len(graphs.tour(graphs.path(9))) == len(graphs.tour(graphs.star(9))) == 16
    assert len(graphs.tour(TOPOLOGIES["petersen"])) == 11  # no cycle of 10, and 11 is the best there is
    assert len(graphs.tour(TOPOLOGIES["odd grid"])) == 16
    assert len(graphs.tour(graphs.from_networkx(nx.balanced_tree(2, 11)))) == 2 * (2**12 - 2)
    assert len(graphs.tour(graphs.erdos_renyi(3000, 0.004))) == 2 * 2999


def test_routes_that_cannot_be_are_refused(monkeypatch):
    graph = graphs.ring(4)
    for arguments, says in [
        (dict(walk="randm", activations=1), "Did you mean 'random'"),
        (dict(walk="random", activations=1, rule="plans"), "'plan'"),
        (dict(walk="random", activations=0), "activations=0"),
        (dict(walk="random", activations=1.5), "activations=1.5"),
        (dict(walk="random", activations=1, start=4), r"0\.\.3"),
        (dict(walk="random", activations=1, start=-1), "start=-1"),
        (dict(walk="tour", activations=10**8), "fewer activations"),
    ]:
        with pytest.raises(InputError, match=says):
            route(graph, key=KEY, **arguments)
    # The package names the function `route`, so the module of that name is reached this way.
    monkeypatch.setattr(importlib.import_module("relaydp.graph.routes"), "MOST_HOPS", 5000)
    with pytest.raises(InputError, match="walk='tour'"):
        route(graphs.path(200), "random", 20, key=KEY, rule="plan")


def test_a_route_of_many_hops_has_them_all():
    taken = route(graphs.ring(8), "random", 10_000, key=KEY)
    assert len(taken) > 70_000 and taken.plf == 10_000


def test_the_public_names_are_what_the_room_offers():
    for name in graphs.__all__:
        assert getattr(graphs, name) is not None


@pytest.mark.parametrize("name", ["ring", "path", "complete", "random-regular:4", "erdos-renyi"])
@pytest.mark.parametrize("walk", ["tour", "cyclic"])
def test_one_agent_has_one_graph_and_hands_the_baton_to_itself(name, walk):
    graph = graph_named(name, 1)
    assert graph == graphs.complete(1) and graph.degree.tolist() == [0] and len(graph.edges) == 0
    way = route(graph, walk, 3, key=jax.random.key(0))
    assert not way.holder.any() and not way.receiver.any() and way.counts(1).tolist() == [3] and way.messages == 0
