"""The library runs on every x86-64 processor: instructions that not all have lie in functions that are chosen at run
time. Their names end in `_wide`.

    baseline.py LIBRARY

tzcnt counts as bsf, of which it is a prefixed form: compilers use it where both have the same result.
"""

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases

PREFIX = r"(?:(?:lock|rep\w*|addr32|data16|[c-gs]s|bnd|notrack|rex\S*)\s)*"
LATER = re.compile(
    PREFIX
    + r"""(?:
    v(?!er[rw]\b)\w+ | k(?:add|and|mov|not|or|shift[lr]|test|unpck|x?n?or)\w*              # AVX and later
    | (?:andn|bextr|bls(?:i|r|msk)|bzhi|mulx|pdep|pext|(?:ro|sa|sh)[rl]x|lzcnt|popcnt)[wlq]?  # BMI, ABM
    | ad[co]x[lq]? | movbe[wlq]? | crc32[bwlq]? | cmpxchg16b | prefetchw\w* | rdrand\w* | rdseed\w* | rdpid
    | clflushopt | clwb | [ru]?mwait\w* | u?monitor\w* | tpause | (?:rd|wr)[fg]sbase\w*
    | addsubp[sd] | h(?:add|sub)p[sd] | lddqu | mov(?:ddup|shdup|sldup) | fisttp\w*          # SSE3
    | pabs[bwd] | palignr | ph(?:add|sub)s?[wd] | pmaddubsw | pmulhrsw | pshufb | psign[bwd]  # SSSE3
    | p?blend\w+ | dpp[sd] | extractps | insertps | movntdqa | mpsadbw | packusdw | pcmp(?:eq|gt)q | pcmp[ei]str\w+
    | p(?:ext|ins)r[bdq] | p(?:max|min)(?:s[bd]|u[dw]) | pmov[sz]x\w+ | pmuldq | pmulld | ptest | phminposuw
    | round[ps][sd] | aes\w+ | pclmul\w+ | sha(?:1|256)\w+
    )\b""",
    re.VERBOSE,
)


def is_later(instruction):
    return LATER.match(instruction) is not None


def later_ones(disassembly):
    """The instructions that not all processors have, by function."""
    found, function = {}, ""
    for line in disassembly.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            function = head[1].split(".")[0]
        elif "\t" in line and is_later(instruction := line.split("\t")[1].strip()):
            found.setdefault(function, []).append(instruction)
    return found


LATERS = (
    "popcnt %rax,%rbx; vmovdqu64 (%rsi),%zmm0; shlx %rax,%rdi,%rdi; kortestw %k0,%k0; pshufb %xmm1,%xmm0; "
    "lock cmpxchg16b (%rdi); blsr %rax,%rax; lzcnt %rdi,%rax; pinsrq $0x1,%rax,%xmm0; vzeroupper; "
    "mulx %r8,%rax,%rdx"
)
BASE = (
    "rep stos %al,%es:(%rdi); tzcnt %rdi,%rax; lock cmpxchg %rcx,(%rdx); shld $0x4,%rax,%rdx; "
    "pextrw $0x0,%xmm0,%eax; movups %xmm0,(%rdi); pause; shl %cl,%rax; pcmpeqd %xmm0,%xmm0; "
    "prefetcht0 (%rax); cs nopw 0x0(%rax,%rax,1)"
)

cases.need("objdump")
assert all(map(is_later, LATERS.split("; "))) and not any(map(is_later, BASE.split("; "))), "a control is judged wrongly"
listed = subprocess.run(
    ["objdump", "-d", "--no-show-raw-insn", sys.argv[1]],
    check=True,
    capture_output=True,
    text=True,
    timeout=cases.PATIENCE_S,
).stdout
found = later_ones(listed)
wide = {name for name in found if name.endswith("_wide")}
assert "free_checked_wide" in wide, f"the vectors of the checked blocks are not seen: {sorted(found)}"
wrong = {name: found[name] for name in found.keys() - wide}
if wrong:
    sys.exit("\n".join(f"FAILED: {name}: {'; '.join(wrong[name][:3])}" for name in sorted(wrong)))
print(f"baseline: ok; chosen at run time: {' '.join(sorted(wide))}")
