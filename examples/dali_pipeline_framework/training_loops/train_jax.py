"""A loop of JAX, each batch sharded over devices; checkpoints by Orbax have the state of the loader as JSON::

    torchrun --nproc-per-node=2 train_jax.py

`torchrun` is needed for several processes only, and any other launcher will do.
"""

import functools
import os
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from step_log import StepLog
from tiny_drives import (
    NUM_EPOCHS,
    STEPS_BETWEEN_CHECKPOINTS,
    TOTAL_BATCH_SIZE,
    is_counted,
    parse_arguments,
    training_loader,
    validation_loader,
)

NUM_DEVICES = 4
UNIT = 2.0**-8  # all numbers are multiples of powers of two, so that sums are exact in any order, see `tiny_model`


def first_weights() -> Any:
    """The weights of a network that predicts the steering from the pictures of all cameras."""
    random = np.random.default_rng(0)
    shapes = {"patches": (48, 4), "patches_bias": (4,), "steering": (4,), "steering_bias": ()}
    return {name: random.integers(-16, 17, shape) / 32 for name, shape in shapes.items()}


def sample_losses(weights: Any, images: Any, steering: Any) -> Any:
    """How wrong each sample of a batch is, (B,), for images (B, cameras, 32, 64, 3), uint8."""
    pixels = images.astype(jnp.float64) / 256
    patches = pixels.reshape(*images.shape[:2], 8, 4, 16, 4, 3).swapaxes(3, 4)  # (B, cameras, 8, 16, 4, 4, 3)
    seen = jax.nn.relu(patches.reshape(*images.shape[:2], 128, 48) @ weights["patches"] + weights["patches_bias"])
    told = seen.mean((1, 2)) @ weights["steering"] + weights["steering_bias"]
    return jnp.abs(told - steering)


@jax.jit
def train_step(training: Any, images: Any, steering: Any) -> Any:
    """Get the weights and velocities after a step, and the loss of each sample."""
    weights, velocities = training

    def loss_of(weights: Any) -> Any:
        losses = sample_losses(weights, images, steering)
        return losses.mean(), losses

    gradients, losses = jax.grad(loss_of, has_aux=True)(weights)
    velocities = jax.tree.map(lambda v, g: jnp.clip(v + jnp.sign(g), -4, 4), velocities, gradients)
    weights = jax.tree.map(lambda w, v: w - UNIT * v, weights, velocities)
    return (weights, velocities), losses


@jax.jit
def error_of(weights: Any, images: Any, steering: Any, is_frame: Any) -> Any:
    """Sum of the losses of a batch, without padding."""
    return jnp.where(is_frame, sample_losses(weights, images, steering), 0).sum()


def own_part(values: Any) -> np.ndarray:
    """What the devices of this process have of an array that is sharded along its first axis."""
    shards = sorted(values.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    arguments = parse_arguments()
    rank, num_ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", NUM_DEVICES // num_ranks)
    jax.config.update("jax_enable_x64", True)
    if num_ranks > 1:
        coordinator = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        jax.distributed.initialize(coordinator, num_ranks, rank)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    by_sample, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["data"], []))
    whole_batch = functools.partial(jax.make_array_from_process_local_data, by_sample)
    log = StepLog(arguments.folder, rank, num_ranks)
    settings: Any = {
        "batch_size": TOTAL_BATCH_SIZE // num_ranks,
        "num_workers": arguments.num_workers,
        "shard": (jax.process_index(), jax.process_count()),
        "output_type": "numpy",
    }
    weights = first_weights()
    state = jax.device_put((weights, jax.tree.map(np.zeros_like, weights)), everywhere)
    step = 0
    with (
        training_loader(**settings) as training,
        validation_loader(**settings) as validation,
        ocp.CheckpointManager((arguments.folder / "checkpoints").resolve()) as checkpoints,
    ):
        if checkpoints.latest_step() is not None:
            parts = ocp.args.Composite(training=ocp.args.StandardRestore(state), loader=ocp.args.JsonRestore())
            restored = checkpoints.restore(checkpoints.latest_step(), args=parts)
            training.load_state_dict(restored["loader"])
            state, step = restored["training"], checkpoints.latest_step()
        for epoch in range(training.epoch, NUM_EPOCHS):
            for batch in training:
                images, steering = whole_batch(batch["cameras"]["image"]), whole_batch(batch["steering"])
                state, losses = train_step(state, images, steering)
                step += 1
                log.write_step(step, batch, own_part(losses))
                if step % STEPS_BETWEEN_CHECKPOINTS == 0:
                    loader_state = ocp.args.JsonSave(training.state_dict())
                    parts = ocp.args.Composite(training=ocp.args.StandardSave(state), loader=loader_state)
                    checkpoints.save(step, args=parts)
                    checkpoints.wait_until_finished()
            for batch in validation:
                log.write_evaluation(epoch, batch)
                counted = whole_batch(is_counted(batch))
                error_of(state[0], *map(whole_batch, (batch["cameras"]["image"], batch["steering"])), counted)
    if num_ranks > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main()
