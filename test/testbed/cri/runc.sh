#!/bin/sh
# Runs runc for CRI-O, which expects of every machine that root may lower an oom_score_adj, and that all cgroup
# controllers of the kernel are mounted.
next=false
bundle=
for argument; do
  ! $next || bundle=$argument
  next=false
  [ "$argument" != --bundle ] || next=true
done
if [ -n "$bundle" ]; then
  sed -i {{if not .LowersOOMScore}}-e 's/"oomScoreAdj": -[0-9]*/"oomScoreAdj": 0/' {{end -}}
    {{if not .Hugetlb}}-e 's/"hugepageLimits"/"hugetlb is not mounted"/' {{end}}-e '' "$bundle/config.json"
fi
exec {{.Bin}}/runc "$@"
