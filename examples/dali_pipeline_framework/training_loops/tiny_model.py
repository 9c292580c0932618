"""The network that the training loops of this folder train, and its optimizer.

All of its numbers are multiples of powers of two, small enough for sums in float64 to be exact, in any order. So
the average of two ranks is, to the last bit, that of one rank with twice the batch: what differs after a resume
would be the data.
"""

from typing import Any

import torch
from torch import nn

__all__ = ["SignDescent", "SteeringNet"]


class SteeringNet(nn.Module):
    """Tells the steering from the pictures of all cameras."""

    def __init__(self) -> None:
        """Make the layers, with the same weights each time."""
        super().__init__()
        self.patches = nn.Conv2d(3, 4, kernel_size=4, stride=4)
        self.steering = nn.Linear(4, 1)
        self.double()
        random = torch.Generator().manual_seed(0)
        for weights in self.parameters():
            with torch.no_grad():
                weights.copy_(torch.randint(-16, 17, weights.shape, generator=random) / 32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Predict the steering (B,) from images (B, cameras, 32, 64, 3), uint8."""
        pixels = images.flatten(0, 1).permute(0, 3, 1, 2).double() / 256
        seen = self.patches(pixels).relu().mean((2, 3))  # (B * cameras, 4)
        return self.steering(seen.unflatten(0, images.shape[:2]).mean(1))[:, 0]

    @staticmethod
    def losses(steering: torch.Tensor, batch: Any) -> torch.Tensor:
        """How wrong each sample of a batch is, (B,)."""
        return (steering - batch["steering"]).abs()


class SignDescent(torch.optim.Optimizer):
    """Steps in the direction of the signs of the gradients, with a velocity of -4 to 4 units.

    Args:
        parameters: Parameters of the model.
        lr: The unit, a power of two.
    """

    def __init__(self, parameters: Any, lr: float = 2.0**-8) -> None:
        """Set it up."""
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Change the parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                velocity = state.setdefault("velocity", torch.zeros_like(parameter))
                velocity.add_(parameter.grad.sign()).clamp_(-4, 4)
                parameter.sub_(group["lr"] * velocity)
        return loss
