"""The library at work on the embedded digits: a recogniser with strangers, a gallery, four heads, and their pages."""

from .demonstrate import Demonstration, demonstrate
from .digit_gallery import DigitAnswers

__all__ = ["Demonstration", "DigitAnswers", "demonstrate"]
