"""Pages of steps: each has its picture, and the pictures are what the steps do today."""

import re

import numpy as np
import pytest
import step_order_table
from doc_pages import PAGES, ROOT, read_lines
from PIL import Image
from step_pictures.gallery import PICTURES, save
from step_pictures.scene import Scene
from support.laws import spread

FOLDER = ROOT / "docs" / "_static" / "steps"
# They change no picture.
WITHOUT_PICTURE = {"axes_layout_setter", "index", "library_steps", "map_step", "pipeline_step_base"}
WITHOUT_PICTURE |= {"points_padder", "tensor_size_adder", "unneeded_fields_remover", "video_decoder"}
# One each of pixels, of the image plane, and of space: enough to see that scene, steps and drawing are the same.
REMADE = ("photo_metric_distorter", "affine_transformer", "bev_bboxes_transformer_3d")


def texts_of(part):
    folder = ROOT / "docs" / part / "steps"
    return {page.stem: "\n".join(read_lines(page)) for page in PAGES if page.parent == folder}


TEXTS, DRIVING_TEXTS = texts_of("dali_pipeline_framework"), texts_of("driving_data")


@pytest.fixture(scope="module")
def scene():
    return Scene()


def test_each_page_has_its_picture_and_each_picture_its_page():
    shown = {name: re.findall(r"\.\./\.\./_static/steps/(\w+)\.webp", text) for name, text in TEXTS.items()}
    assert shown == {name: [] if name in WITHOUT_PICTURE else [name] for name in TEXTS}
    assert {*PICTURES} == {*TEXTS} - WITHOUT_PICTURE == {path.stem for path in FOLDER.iterdir()}


def test_index_and_gallery_link_all_pages():
    for texts in (TEXTS, DRIVING_TEXTS):
        links = re.findall(r"\]\((\w+)\.md\)", texts["index"])
        assert {*texts} - {"index"} <= {*links}
    gallery = (ROOT / "docs" / "dali_pipeline_framework" / "gallery.md").read_text(encoding="utf-8")
    in_gallery = re.findall(r"\(\.\./_static/steps/(\w+)\.webp\)\]\(steps/\1\.md\)", gallery)
    assert sorted(in_gallery) == sorted(PICTURES)


@spread("name", REMADE, 1)
def test_picture_is_what_the_steps_do_today(name, scene, tmp_path):
    path = tmp_path / f"{name}.webp"
    save(PICTURES[name](scene), path)
    remade, kept = (np.asarray(Image.open(each).convert("RGB"), np.float32) for each in (path, FOLDER / path.name))
    assert remade.shape == kept.shape
    # Fonts and codecs may differ a little between versions of libraries. Another draw gives 15, matrices that do
    # not follow the image 3, and orientations that do not follow their boxes 2.
    assert np.abs(remade - kept).mean() < 0.4


def test_the_table_of_orders_is_what_the_steps_declare():
    page = "\n".join(read_lines(step_order_table.PAGE))
    _, _, behind = page.partition(step_order_table.BEGIN)
    assert behind.partition(step_order_table.END)[0].strip() == step_order_table.table()
