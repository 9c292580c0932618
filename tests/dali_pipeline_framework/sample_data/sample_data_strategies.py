"""Random formats and text for the laws in this folder."""

from __future__ import annotations

from hypothesis import strategies as st
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework.sample_data import GroupFormat, SampleDataGroup, ValueMapping
from accvlab.dali_pipeline_framework.sample_data.formats import leaf_format

DTYPES = [
    DALIDataType.BOOL,
    DALIDataType.INT8,
    DALIDataType.INT32,
    DALIDataType.UINT8,
    DALIDataType.UINT64,
    DALIDataType.FLOAT16,
    DALIDataType.FLOAT,
    DALIDataType.FLOAT64,
    DALIDataType.STRING,
]

# Few different names, so that the same name occurs in several places. None of them makes flat names collide.
names = st.sampled_from(["a", "b", "image", "boxes"]) | st.integers(0, 3)

leaves = st.builds(
    lambda dtype, mapping, ndim: (
        leaf_format(dtype) if dtype == DALIDataType.STRING else leaf_format(dtype, mapping, ndim)
    ),
    st.sampled_from(DTYPES),
    st.none() | st.just(ValueMapping({"car": 1, None: 0})),
    st.none() | st.integers(0, 3),
)


def _groups(children):
    return st.dictionaries(names, children, max_size=4).map(
        lambda items: GroupFormat(tuple(items), tuple(items.values()))
    )


formats = _groups(st.recursive(leaves, _groups, max_leaves=12))
groups = formats.map(SampleDataGroup.from_format)

texts = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: not text.endswith("\0"))
