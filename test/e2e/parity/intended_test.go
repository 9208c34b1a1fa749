package parity

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// difference is a line of a comparison that may differ, in the named stories or in all, with the reason why.
type difference struct{ stories, line, reason string }

// intended differences show each time the stories are told. An entry that nothing differed by is named in the log.
var intended = []difference{
	{
		"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^\+ Normal Pulled spec.containers\{app\}`,
		"images are pulled while volumes are mounted",
	},
	{
		"initfailed|initloop|illsidecar|nosuchtaginit|borrowedinit|longfqdn|nohandler|noimagevolume|borrowedvolume",
		`^\+ Normal Pulled spec.containers\{app\}`, "the images of all containers are pulled side by side",
	},
	{
		"novolume|nopull", `^-   message: 'containers with unready status: \[app\]'$`,
		"the conditions of a pod that has ended follow from its final phase",
	},
	{
		"novolume|nopull", `^[+-]   reason: (ContainersNotReady|PodFailed)$`,
		"the conditions of a pod that has ended follow from its final phase",
	},
	{
		"outofcpu|selector|sysctl|affinity|apparmor|otheros|outofhuge|outofmany|outofmemory|outofdisk|unsafe|initrefused",
		`^\+ (conditions:|- lastProbeTime: null|  lastTransitionTime: "TIME"|  observedGeneration: 1|  reason: (PodFailed|UnknownContainerStatuses)|  status: "(True|False)"|  type: .*)$`, "a rejected pod has its conditions",
	},
	{"ill", `^[+-] Normal Killing `, "the kubelet stops the whole pod where its last container isn't started again; " +
		"kubelot says why, and keeps to the probe's own grace period"},
	{
		"node",
		`^-   (- (InPlacePodLevelResourcesVerticalScaling|InPlacePodVerticalScalingInitContainers|RestartAllContainersOnContainerExits))$`, "features that kubelot has not declare themselves (KEP-5328)",
	},
	{
		"outofcpu|selector|sysctl|affinity|apparmor|otheros|outofhuge|outofmany|outofmemory|outofdisk|unsafe|initrefused",
		`^\+ (hostIP: ADDRESS|hostIPs:|- ip: ADDRESS)$`, "a rejected pod has its node's address",
	},
	{"longfqdn|nohandler", `^[+-] /kubepods/`, "the pod's cgroup is created with its sandbox, the kubelet's before " +
		"everything else"},
	{
		"envfilebad",
		`^([+-]       message: |\+         enclosed in single quotes'|[+-] Warning Failed .* Error: )(couldn't parse env file|'couldn''t parse env file)?`, "kubelot says which line of which file is wrong",
	},
	{"outofdisk", `capacity: \d+`, "the kubelet reckons the eviction threshold with 24 bits, which loses some bytes"},
	{
		"imagevolume", `^- Normal Pulled  .* already present on machine`,
		"the kubelet looks for the volume's image at each of its looks at the pod",
	},
}

// races show at some times only: by when the two agents act, by how busy the machine is, or by what the kubelet leaves
// open.
var races = []difference{
	{
		"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^[+-]   status: "(True|False)"$`,
		"the sandbox is created while volumes are mounted",
	},
	{
		"hostpath|noclaim|nokeyvolume|nosecretvolume|novolume", `^\+ (podIP: ADDRESS|podIPs:|- ip: ADDRESS)$`,
		"the sandbox is created while volumes are mounted",
	},
	{"unreadytcp", `^[+-] Warning Unhealthy .* i/o timeout$`, "a busy machine may not refuse a connection within the " +
		"probe's second"},
	{"unreadyhttp", `^[+-] Warning Unhealthy .*Client.Timeout exceeded while awaiting headers\)$`, "the same"},
	{
		"unready|unreadyslow", `^[+-] Warning Unhealthy .* probe failed: $`,
		"a command that ends with its container has failed without a word",
	},
	{
		"ill|illsidecar|probed|unready|unreadyslow|unstarted", `^- Warning Unhealthy .* context canceled$`,
		"the kubelet's own end shows as an error of the probes under way",
	},
	{
		"novolume|nosecretvolume|nokeyvolume", `^- Warning FailedMount .* not registered$`,
		"the kubelet forgets a deleted pod's objects while it still mounts them",
	},
	{
		"crash|poststart|initloop|nocommand",
		`^[+-] ( +restartCount: \d| +message: back-off \d+s restarting .*|attempt: \d|log_path: .*|  attempt: \d|  io.kubernetes.container.restartCount: "\d")$`, "the next start falls before the look or after it",
	},
	{"crash|poststart|initloop|nocommand", `^[+-] Normal Killing `, "the container may run at the deletion"},
	{"preempted", `^[+-] phase: (Failed|Succeeded)$`, "the kubelet takes a pod that it preempts away under its " +
		"containers, and its phase may be theirs; e2e TestTaintedNode has kubelot's"},
	{
		"preempted", `^\+ (message: Preempted in order to admit critical pod|reason: Preempting)$`,
		"and so may its reason be gone",
	},
	{
		"preempted", `^[+-]   reason: Pod(Completed|Failed)$`,
		"the conditions of a pod that has ended follow from its phase",
	},
	{
		"preempted",
		`^[+-] +(containerID: CONTAINER|exitCode: (0|137)|(finished|started)At: ("TIME"|null)|message: The container could not be located .*|reason: (Completed|Error|ContainerStatusUnknown))$`, "its container may be gone before the kubelet has seen its end",
	},
	{
		"preempted", `^[+-] (  )*(resources:( \{\})?|requests:|ephemeral-storage: N)$`,
		"and what it was allocated is gone with it",
	},
	{"preempted", `^- Warning ExceededGracePeriod `, "the kubelet gives it no time"},
	{"dnsmore", `^[+-] (  - timeout|options .*)$`, "the kubelet gives the resolver's options in any order"},
	{
		"digest|tagdigest", `^[+-]   imageID: OPEN/(tag)?digest@sha256:[0-9a-f]+$`,
		"the same image under two names, of which the runtime tells one",
	},
	{
		"", `^(-   user: \{\}|\+ +(user:|linux:|gid: 0|supplementalGroups:|- 0|uid: 0))$`,
		"the kubelet's first status of a container may be from before the runtime tells its user",
	},
	{"poststarthttp", `^[+-]       exitCode: (2|137|143)$`, "the hook fails at once, when the container may not ignore " +
		"SIGTERM yet"},
	{
		"nopull", `^[+-] +(reason: (ErrImagePull|ImagePullBackOff)$|message: .*(Back-off pulling|failed to pull) )`,
		"the pod may be deleted between two attempts or at one",
	},
	{
		"env|extended|tiny",
		`^(\+     (cpu|ephemeral-storage|example.com/thing): .*|\+   (limits|requests):|\+ resources:|- resources: \{\})$`,
		"when the kubelet looks at a running pod again, it tells only of what the pod's cgroup can show",
	},
	{
		"",
		`^- Warning FailedMount .*(failed to sync (configmap|secret) cache: timed out waiting for the condition|no relationship found between node .* and this object)$`, "the kubelet tries once what it has no answer to yet, and says so",
	},
}

// TestDifferencesAreOfStories holds the names in both lists to the stories that there are.
func TestDifferencesAreOfStories(t *testing.T) {
	for _, d := range slices.Concat(intended, races) {
		for name := range strings.SplitSeq(d.stories, "|") {
			if name != "" && name != "node" && !slices.ContainsFunc(stories, func(s story) bool { return s.name == name }) {
				t.Errorf("there is no story %q, which may differ by %s", name, d.line)
			}
		}
	}
}

// How much of all that is compared an allowance may cover, and all those of one story together.
const (
	mostOfAnAllowance = 1.0 / 15
	mostOfAStory      = 1.0 / 6
)

// TestAllowancesAreNarrow holds the lists to a part of what the stories tell: a story that may differ in nearly every
// line compares nothing. testdata/stories.txt has what was seen of two pods, one of them preempted.
func TestAllowancesAreNarrow(t *testing.T) {
	seen := distinctLines(t, "testdata/stories.txt")
	for _, s := range append(slices.Clone(stories), story{name: "node"}) {
		if all := share(seen, s.name, slices.Concat(intended, races)...); all > mostOfAStory {
			t.Errorf("the story %s may differ in %.0f %% of the lines, the limit is %.0f %%", s.name, 100*all, 100*mostOfAStory)
		}
	}
	for _, d := range slices.Concat(intended, races) {
		name, _, _ := strings.Cut(d.stories, "|")
		if one := share(seen, name, d); one > mostOfAnAllowance {
			t.Errorf("%s may differ by %s in %.0f %% of the lines, the limit is %.0f %%: say which lines they are",
				d.stories, d.line, 100*one, 100*mostOfAnAllowance)
		}
	}
	wide := difference{stories: "any", line: `^[+-] ( |- |phase: |message: |reason: |conditions:|resources:)`}
	if one := share(seen, "any", wide); one < 0.5 {
		t.Errorf("an allowance for nearly every line is taken for %.0f %%", 100*one)
	}
}

// share is the part of the lines that the story may have more or less of by the allowances.
func share(lines []string, story string, allowed ...difference) float64 {
	covered := 0
	for _, line := range lines {
		if slices.ContainsFunc(allowed, func(d difference) bool {
			return d.covers(story, "+ "+line) || d.covers(story, "- "+line)
		}) {
			covered++
		}
	}
	return float64(covered) / float64(len(lines))
}

// distinctLines are the lines of a file, each once.
func distinctLines(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(data), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "#####")
	})
	slices.Sort(lines)
	return slices.Compact(lines)
}

// excuses are the intended differences that lines were excused by, with the stories of those lines.
type excuses map[difference]map[string]bool

// unintended are the lines that no difference in the lists accounts for.
func (e excuses) unintended(story string, lines []string) string {
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		excused := slices.ContainsFunc(races, func(d difference) bool { return d.covers(story, line) })
		for _, d := range intended {
			if d.covers(story, line) {
				if e[d] == nil {
					e[d] = map[string]bool{}
				}
				e[d][story], excused = true, true
			}
		}
		return excused
	}), "\n")
}

// covers reports whether the line of the story may differ.
func (d difference) covers(story, line string) bool {
	return (d.stories == "" || slices.Contains(strings.Split(d.stories, "|"), story)) &&
		regexp.MustCompile(d.line).MatchString(line)
}

// tell names the intended differences that no story showed: they may be there no more, or the timing was kind.
func (e excuses) tell(t *testing.T) {
	t.Helper()
	for _, d := range intended {
		if len(e[d]) == 0 {
			t.Logf("%s: nothing differs (any more) by %s: %s", d.stories, d.line, d.reason)
			continue
		}
		for name := range strings.SplitSeq(d.stories, "|") {
			if !e[d][name] {
				t.Logf("%s didn't differ by %s: %s", name, d.line, d.reason)
			}
		}
	}
}
