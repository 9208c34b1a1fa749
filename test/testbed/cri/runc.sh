#!/bin/sh
# Runs runc for CRI-O, which expects of every machine that root has all capabilities (one is needed to lower an
# oom_score_adj), and that all cgroup controllers of the kernel are mounted.
option=
spec=
for argument; do
  case $option in
  --bundle) spec=$argument/config.json ;;
  --process) spec=$argument ;;
  esac
  option=$argument
done
if [ -n "$spec" ]; then
  sed -i {{if not .SysResource -}}
    -e 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj": 0/; s/"CAP_SYS_RESOURCE"/"CAP_CHOWN"/g' {{end -}}
    {{if not .Hugetlb}}-e 's/"hugepageLimits"/"hugetlb is not mounted"/' {{end}}-e '' "$spec"
fi
exec {{.Bin}}/runc "$@"
