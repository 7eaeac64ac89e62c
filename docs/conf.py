"""The documentation site, whose sources are the pages of the repository: links hold here and there.

pip install -e '.[tensorflow,docs]'
sphinx-build -c docs -W --keep-going . build/site

Guides are run when the site is built; nothing is loaded from the network.
"""

import keras_attention

project = "keras_attention"
author = "The keras_attention authors"
release = version = keras_attention.__version__

root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/results/README.md",
    "dev/LOG.md",
    "docs/*.md",
    "docs/*/*.md",
]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"
html_title = f"keras_attention {release}"
html_show_sphinx = False
html_copy_source = False
# The address of the site leads to its first page.
html_extra_path = ["root"]

# Links go to the headings as on code hosts.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# The code of a page is shown as it is, an error of ours or not.
suppress_warnings = ["misc.highlighting_failure"]

# A guide that fails stops the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "imported-members": True, "show-inheritance": True}
autodoc_default_options["exclude-members"] = "build, compute_mask, from_config, get_config"
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Call arguments", "params_style")]
napoleon_use_ivar = True
# `name` in a docstring is code.
default_role = "code"
