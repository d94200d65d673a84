"""Which rank of a job waits for which?

summary([profile, ...])     all profiles of a job ► RanksDocument
one_rank(profile), join()   the same where the profiles together are too large: condense each, then join them
"""

from gpuprep.trace.ranks.document import CollectiveLine, RankLine, RanksDocument, RankStep, Straggler

__all__ = ["CollectiveLine", "RankLine", "RankStep", "RanksDocument", "Straggler"]
