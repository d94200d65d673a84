"""Which rank of a job waits for which?

summary([profile, …], job)          all profiles of a job ► RanksDocument
join([…ranks_of(profile)…], job)    the same where they are too large together: condense each, drop it, join
"""

from gpuprep.trace.ranks.condensing import OneRank, ranks_of
from gpuprep.trace.ranks.document import CollectiveLine, RankLine, RanksDocument, RankStep, Straggler
from gpuprep.trace.ranks.joining import join, summary

__all__ = [
    "CollectiveLine",
    "OneRank",
    "RankLine",
    "RankStep",
    "RanksDocument",
    "Straggler",
    "join",
    "ranks_of",
    "summary",
]
