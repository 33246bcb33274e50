"""Train a margin head and MHE with the Trainer of transformers; a callback advances the head after every step."""

import tempfile

import transformers
from torch import Tensor, nn

import hypersphere as hs


class Recognizer(nn.Module):
    """A network with a margin head and hyperspherical energy as a regularizer."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
        self.head = hs.CosFace(32, 10, m=0.2, scale=16.0)
        self.energy = hs.MHE(self.network)

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        features = self.network(images)
        return {"loss": self.head(features, labels) + 0.1 * self.energy(), "logits": self.head.logits(features)}


class AdvanceHead(transformers.TrainerCallback):
    """Callback that advances the schedules of the head, such as annealing, after every step."""

    def on_step_end(self, args: object, state: object, control: object, model: Recognizer, **more: object) -> None:
        model.head.step()


digits, test = hs.data.Digits(train=True), hs.data.Digits(train=False)
samples = [{"images": image.float() / 255, "labels": label} for image, label in digits]
options = {"report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "seed": 0}
model = Recognizer()
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(folder, num_train_epochs=5, learning_rate=3e-3, **options)
    transformers.Trainer(model, arguments, train_dataset=samples, callbacks=[AdvanceHead()]).train()
predicted = model.head.predict(model.network(test.data.float() / 255))
print(f"accuracy {(predicted == test.labels).float().mean():.1%}")
