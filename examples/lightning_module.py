"""Train a margin head and MHE with PyTorch Lightning; both are ordinary submodules of a LightningModule."""

import lightning
import torch
from torch import Tensor, nn

import hypersphere as hs


class Recognizer(lightning.LightningModule):
    """A network with a margin head and hyperspherical energy as a regularizer."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
        self.head = hs.CosFace(32, 10, m=0.2, scale=16.0)
        self.energy = hs.MHE(self.network)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        images, labels = batch
        return self.head(self.network(images), labels) + 0.1 * self.energy()

    def on_train_batch_end(self, *args: object) -> None:
        self.head.step()  # advances schedules such as annealing

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


lightning.seed_everything(0)
digits, test = hs.data.Digits(train=True), hs.data.Digits(train=False)
samples = torch.utils.data.TensorDataset(digits.data.float() / 255, digits.labels)
loader = torch.utils.data.DataLoader(samples, batch_size=128, shuffle=True)
options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
model = Recognizer()
lightning.Trainer(max_epochs=5, accelerator="cpu", **options).fit(model, loader)
with torch.no_grad():
    predicted = model.head.predict(model.network(test.data.float() / 255))
print(f"accuracy {(predicted == test.labels).float().mean():.1%}")
