"""`python3 -I program.pyz VERB` on the host."""

import sys

from gpuprep.agent.rollback.program import main

if __name__ == "__main__":
    sys.exit(main())
