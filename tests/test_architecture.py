"""The house, read from its source: which room imports which, and what no file may do."""

import ast
import importlib.metadata
import inspect
import itertools
import re
import sys
import tomllib

import pytest

from tests.helpers import ROOT, python

pytestmark = pytest.mark.backends("tensorflow")

PACKAGE = ROOT / "keras_attention"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}

# room -> rooms of the package that it may import besides itself. Data flows one way.
ALLOWED = {
    "utils": set(),
    "spec": {"utils"},
    "ops": set(),
    "data": {"interop", "spec", "utils"},
    "layers": {"ops", "spec", "utils"},
    "models": {"data", "interop", "layers", "ops", "spec", "training", "utils"},
    "engine": {"interop", "ops", "spec", "utils"},
    "decoding": {"data", "engine", "interop", "models", "ops", "spec", "utils"},
    "interop": {"spec", "utils"},
    "training": {"ops", "utils"},
    "evaluation": {"data", "ops", "training", "utils"},
    "visualization": {"spec", "utils"},
    "callbacks": {"evaluation", "training", "utils", "visualization"},
    "serving": {"data", "decoding", "engine", "spec", "utils", "visualization"},
}
# Rooms above all of these.
TOP = {"recipes", "cli"}
# Rooms with public names.
OPEN_ROOMS = (
    *("callbacks", "data", "decoding", "evaluation", "interop", "layers", "models", "recipes"),
    *("spec", "training", "visualization"),
)


NOT_ON_IMPORT = ("TYPE_CHECKING", "__name__ == '__main__'")


def relative(path):
    return path.relative_to(PACKAGE).as_posix()


def imported_modules(path, nodes):
    """Names of all modules that statements import, relative ones resolved."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def run_on_import(tree):
    """All nodes that Python runs when it imports a module: no bodies of functions."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in NOT_ON_IMPORT:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        elif isinstance(node, ast.ClassDef):
            waiting += [*node.bases, *node.keywords, *node.body]
        else:
            waiting += ast.iter_child_nodes(node)


def test_every_room_is_in_the_table():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert rooms == ALLOWED.keys() | TOP


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_rooms_import_only_downwards(room):
    for path in (path for path in FILES if relative(path).startswith(f"{room}/")):
        for module in imported_modules(path, ast.walk(TREES[path])):
            parts = module.split(".")
            if parts[0] == "keras_attention" and len(parts) > 1 and (PACKAGE / parts[1]).is_dir():
                assert parts[1] in ALLOWED[room] | {room}, f"{relative(path)} imports {module}"


@pytest.mark.parametrize("package", ["keras_attention", "keras_attention_viewer"])
def test_no_module_imports_itself_by_a_detour(package):
    """Neither by an import inside a function, nor by one for types."""
    files = [path for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py"]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    graph = {
        name: {*imported_modules(path, ast.walk(ast.parse(path.read_text())))} & names.keys()
        for name, path in names.items()
    }
    done = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])


ROOM_WITHOUT_KERAS = re.compile(r"^\| `(\w+)/` \| ((?:`[\w.]+`(?:, )?)*) ?\|$", re.MULTILINE)


def test_rooms_without_keras_import_no_backend():
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = dict(ROOM_WITHOUT_KERAS.findall(page.partition("| room without Keras |")[2]))
    expected = {"cli", "data", "decoding", "engine", "interop", "serving", "spec", "utils"}
    assert rooms.keys() == expected
    light, heavy = [], []
    for room, named in rooms.items():
        exceptions = re.findall(r"`(.*?)`", named)
        assert all((PACKAGE / room / name).is_file() for name in exceptions)
        for path in (path for path in FILES if relative(path).startswith(f"{room}/")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            (heavy if path.name in exceptions else light).append(module.removesuffix(".__init__"))
    light.append(
        "keras_attention.recipes.start"
    )  # It finds a pretrained model before Keras starts.
    program = f"""
import importlib, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("keras", "tensorflow", "jax", "torch"):
            raise ImportError(f"{{name}} is refused")

sys.meta_path.insert(0, Refusing())
import keras_attention_light
for name in {light!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Extras; others are imported later.
        assert error.name in ("ctranslate2", "h11", "prometheus_client", "starlette", "uvicorn"), name
needless = []
for name in {heavy!r}:
    try:
        importlib.import_module(name)
        needless.append(name)
    except ImportError as error:
        assert "is refused" in str(error), error
print(needless)
"""
    assert python("-c", program).stdout == "[]\n"


def test_the_backend_is_asked_for_in_one_place_for_each_kind_of_thing():
    asking = [relative(path) for path in FILES if "backend.backend()" in path.read_text()]
    assert asking == ["ops/dispatch.py", "utils/backend.py"]  # what to compute, and the name


EXAMPLES = {path: ast.parse(path.read_text()) for path in (ROOT / "examples").rglob("*.py")}


def test_examples_import_public_names_only():
    assert len(EXAMPLES) > 10
    for path, tree in EXAMPLES.items():
        modules = imported_modules(path, ast.walk(tree))
        private = [name for name in modules if any(map(is_private, name.split(".")))]
        assert not private, f"{path.name} imports {private}"


def test_nobody_imports_private_keras():
    for path, tree in {**TREES, **EXAMPLES}.items():
        private = [m for m in imported_modules(path, ast.walk(tree)) if m.startswith("keras.src")]
        assert not private, f"{path.name} imports {private}"


def test_what_is_imported_is_declared():
    """And no package is there only because another one needs it; what is not installed is not looked at."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    declared = {
        re.match(r"[\w.-]+", line)[0].lower().replace("_", "-")
        for line in itertools.chain(project["project"]["dependencies"], *extras)
    }
    owners = importlib.metadata.packages_distributions()
    packages = ("keras_attention", "keras_attention_light", "keras_attention_viewer")
    data = project["tool"]["setuptools"]["package-data"]
    for package in packages:
        assert (ROOT / package / "py.typed").exists() and "py.typed" in data[package]
    for path in (path for package in packages for path in (ROOT / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {name.split(".")[0] for name in imported_modules(path, ast.walk(tree))}
        for name in names - {*sys.stdlib_module_names, *packages}:
            own = {owner.lower().replace("_", "-") for owner in owners.get(name, ())}
            assert not own or own & declared, f"{path.name} imports {name} of {', '.join(own)}"


# What modules call when they are imported, beside decorators and types' constructors.
CALLED_ON_IMPORT = """
    _crossentropy.defvjp _amx_only _dense _island _layer _scores_kernel _tile_intrinsic _weight
    _weighted_sum_kernel check_backend count dataclasses.field dataclasses.replace float frozenset
    imported_lazily len np.dtype np.float32 np.float32(1e-30).view operation range re.compile
    sorted staticmethod types.int32
""".split()


def test_nothing_is_called_on_import_but_constants():
    found = {}
    for path, tree in TREES.items():
        for node in run_on_import(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                is_type = name.split(".")[-1][0].isupper()
                if not is_type and name not in CALLED_ON_IMPORT:
                    found.setdefault(name, []).append(relative(path))
    assert not found


# Rooms in which weights have names, and the ends of names that are asked for there all the same.
ROOMS_WITH_WEIGHTS = "decoding engine interop layers models ops spec training".split()
KNOWN_ENDS = {
    # Variables of Keras' own layers and generators, which say what they are by their names alone.
    "training/checkpoint_store.py: v.path.endswith('seed_generator_state')"
}


def test_no_weight_is_recognised_by_the_end_of_its_name():
    found = {
        f"{relative(path)}: {ast.unparse(node)}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "endswith"
        and relative(path).split("/")[0] in ROOMS_WITH_WEIGHTS
    }
    assert found <= KNOWN_ENDS


# Files longer than this are two subjects.
MOST_LINES = 500


def test_files_can_be_read_in_a_sitting():
    long = {relative(path) for path in FILES if len(path.read_text().splitlines()) > MOST_LINES}
    assert not long


# A function with more parameters lacks an object for what travels together.
MOST_PARAMETERS = 7
# Compiled code and hooks of others: a tuple of scalars would cost time there, or is not ours to make.
MORE_PARAMETERS = {
    "engine/numba/attention.py": {"attend", "scores", "weighted_sum"},
    "engine/numba/choice.py": {"choose"},
    "engine/numba/layers.py": {"attend_row", "attention_inputs", "attention_output"},
    "engine/numba/search.py": {"attend_to_history", "attend_to_source", "search", "step"},
    "engine/numba/tiles.py": {"_epilogue", "multiply", "tile"},
}


def test_functions_have_few_parameters():
    """Constructors, the options of public functions and the calls of layers aside."""
    public = set().union(
        *(importlib.import_module(f"keras_attention.{room}").__all__ for room in OPEN_ROOMS)
    )
    found = {}
    for path, tree in TREES.items():
        room = relative(path).split("/")[0]
        of_layers = {"call", "compute_output_spec"} if room in ("layers", "models") else set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name not in public | of_layers | {
                "__init__"
            }:
                parts = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if len([one for one in parts if one.arg not in ("self", "cls")]) > MOST_PARAMETERS:
                    found.setdefault(relative(path), set()).add(node.name)
    assert found == MORE_PARAMETERS


# Keras' private names that the package overrides or reads: a new version of Keras may change them.
OVERRIDDEN_HOOKS = """
    Adam._apply_weight_decay Adam._backend_update_step Adam._clip_gradients
    MultiHeadAttention._compute_attention MultiHeadAttention._get_common_kwargs_for_sublayer
    MultiHeadAttention._masked_softmax
""".split()
PRIVATE_NAMES_OF_KERAS = {
    "layers/declared.py": {"_flatten_layers"},
    "layers/multi_head_attention.py": {
        "_attention_axes",
        "_dropout_layer",
        "_flash_attention",
        "_gate_dense",
        "_inverse_sqrt_key_dim",
        "_key_dense",
        "_num_heads",
        "_output_dense",
        "_output_shape",
        "_query_dense",
        "_sliding_window",
        "_use_bias",
        "_use_gate",
        "_value_dense",
        "_value_dim",
    },
    "layers/door.py": {"_remat_mode"},
    "layers/recompute.py": {"_flatten_layers", "_seed_generators"},
    "models/branched_attention.py": {"_kernel_initializer"},
    "models/lora.py": {"_flatten_layers"},
    "models/torch_step.py": {"_flatten_layers"},
    "training/optimizer.py": {
        "_get_variable_index",
        "_iterations",
        "_learning_rate",
        "_momentums",
        "_track_variable",
        "_use_weight_decay",
        "_velocities",
        "_velocity_hats",
    },
}
ROOMS_WITH_KERAS_CLASSES = ("callbacks", "layers", "models", "training")


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def test_overridden_hooks_of_keras_are_known():
    found = set()
    for path in FILES:
        if relative(path).split("/")[0] not in ROOMS_WITH_KERAS_CLASSES:
            continue
        module = importlib.import_module(
            ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        )
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ != module.__name__:
                continue
            theirs = [base for base in kind.__mro__ if base.__module__.startswith("keras.")]
            found |= {
                f"{kind.__name__}.{name}"
                for name in filter(is_private, vars(kind))
                if any(name in vars(base) for base in theirs)
            }
    assert found == {*OVERRIDDEN_HOOKS}


def test_private_names_of_keras_are_known():
    own = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(getattr(node, "ctx", None), ast.Store):
                own.add(getattr(node, "attr", getattr(node, "id", None)))
    found = {}
    for path, tree in TREES.items():
        if relative(path).split("/")[0] not in ROOMS_WITH_KERAS_CLASSES:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
                found.setdefault(relative(path), set()).add(node.attr)
    assert found == PRIVATE_NAMES_OF_KERAS
