"""Characters as tokens."""


class Tokenizer:
    def __init__(self, text):
        self.characters = sorted(set(text))
        self.codes = {character: code for code, character in enumerate(self.characters)}

    def __len__(self):
        return len(self.characters)

    def encode(self, text):
        return [self.codes[character] for character in text]
