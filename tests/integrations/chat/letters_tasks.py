"""A task set for verifiers, as its users write them: a reward, a tool server, two tasks."""

import verifiers.v1 as vf


class LettersConfig(vf.TasksetConfig):
    words: tuple[str, ...] = ("banana", "tree")


class LettersData(vf.TaskData):
    answer: str


class LettersTools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    TOOL_PREFIX = "letters"

    @vf.tool
    async def count(self, word: str, letter: str) -> str:
        """Count a letter in a word."""
        return str(word.count(letter))


class LettersTask(vf.Task[LettersData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def right(self, task: LettersData, trace: vf.Trace) -> float:
        return float((trace.branches[-1].messages[-1].content or "").strip() == task.answer)

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [LettersTools(vf.ToolsetConfig())]


class LettersTaskset(vf.Taskset[LettersTask, LettersConfig]):
    def load(self) -> list[LettersTask]:
        return [
            LettersTask(
                LettersData(
                    prompt=f"How many e in {word}?",
                    system_prompt="Count.",
                    answer=str(word.count("e")),
                ),
                self.config.task,
            )
            for word in self.config.words
        ]


__all__ = ["LettersTaskset"]

if __name__ == "__main__":
    LettersTools.run()
