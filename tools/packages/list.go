package main

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"

	"kubelot.dev/cli"
	"kubelot.dev/deploy"
)

// pack is one package.
type pack struct {
	name, summary string
	// dir is where its file goes below that of the architecture. What is in one directory can be installed together.
	dir string
	// text goes on after the summary.
	text       string
	programs   []string // executables, into lib/kubelot/bin
	part       string   // of package deploy
	links      map[string]string
	kind       string // which of the scripts, and their unit
	unit       string
	relations  relations
	completion bool
	// rpmConfig are the administrator's files that the rpm brings, by their place. An upgrade keeps what is changed.
	rpmConfig map[string]string
	// files are those that the packager makes, by their place.
	files map[string][]byte
}

// relations are those to other packages, as dpkg writes them. {deb, rpm} where these have other names.
type relations struct {
	depends, recommends, suggests, provides, conflicts, replaces []relation
}

type relation struct{ deb, rpm string }

func both(names ...string) []relation {
	var list []relation
	for _, name := range names {
		list = append(list, relation{name, name})
	}
	return list
}

const (
	binDir = "/usr/lib/kubelot/bin/"
	// crewName is provided by what brings all daemons, in either layout.
	crewName = "kubelot-crew"
)

// summaries say what each daemon does.
var summaries = map[string]string{
	"api":      "serves the node's HTTPS API, logs, streams, metrics and healthz",
	"bus":      "message bus of the node agent's daemons",
	"gc":       "collects garbage, rotates logs, evicts pods under pressure",
	"lease":    "registers the node, renews its lease, reports its status",
	"pleg":     "observes what the container runtime really runs",
	"podsync":  "makes the wanted pods run",
	"probe":    "runs the liveness, readiness and startup probes",
	"resource": "gives pods devices, CPUs and memory of their own",
	"stats":    "knows the machine and its usage",
	"status":   "writes pod status, mirror pods and events to the API server",
	"volume":   "mounts what pods need",
}

// list is all packages. version is that of the packages, and previous that of the release before, whose daemons run
// side by side with theirs. So each package asks for what it needs in that version at least, and can be upgraded alone;
// the one of the whole crew brings all of its own version. Nothing says that it breaks what is older still: apt would
// solve that by removing daemons, and leave a node without its agent.
func list(version, previous string) ([]*pack, error) {
	daemons, err := deploy.Daemons()
	if err != nil {
		return nil, err
	}
	runtime := []relation{{"containerd | containerd.io | cri-o", ""}, {"containernetworking-plugins | kubernetes-cni", ""}}
	meta := &pack{
		name: "kubelot", summary: "node agent of Kubernetes, as a crew of small daemons",
		text: "It brings all daemons, each of which is a systemd unit\nand a package of its own.",
		relations: relations{
			depends:    atLeast(version, "kubelot-common", "kubelot-cli"),
			provides:   both(crewName),
			recommends: runtime,
		},
	}
	common := &pack{
		name: "kubelot-common", summary: "what all of kubelot's daemons share",
		text: "The systemd target that starts the crew, its slice, directories and flags.",
		part: deploy.Common, kind: "common",
		// Its units call the command line when the system stops, by commands that an older one may lack.
		relations: relations{depends: atLeast(version, "kubelot-cli"), recommends: both("systemd")},
	}
	tool := &pack{
		name: "kubelot-cli", summary: "command line of kubelot, the node agent of Kubernetes",
		text:       "It shows what the daemons do and why a pod doesn't run,\nand runs the crew without systemd.",
		programs:   []string{"kubelot", "kubelot-up"},
		links:      map[string]string{"/usr/bin/kubelot": "../lib/kubelot/bin/kubelot"},
		completion: true,
	}
	compact := &pack{
		name: "kubelot-compact", summary: "node agent of Kubernetes, in one process", dir: "compact",
		text:     "All of kubelot's daemons in one process, for machines whose\nmemory counts more than isolation.",
		programs: []string{"kubelot-compact"}, part: deploy.Compact, kind: "daemon", unit: "kubelot-compact.service",
		relations: relations{
			depends: slices.Concat(
				atLeast(previous, "kubelot-common", "kubelot-cli"),
				mount(),
			), provides: both(crewName), recommends: runtime, suggests: clients(),
		},
	}
	all := []*pack{meta, common, tool, compact, kubelet(version, previous)}
	for _, name := range daemons {
		oldest := oldestFor(name, previous)
		daemon := &pack{
			name: "kubelot-" + name, summary: "kubelot's " + name + ": " + summaries[name],
			text:     "It is restarted and upgraded alone; pods go on running meanwhile.",
			programs: []string{"kubelot-" + name}, part: name, kind: "daemon", unit: "kubelot-" + name + ".service",
			relations: relations{depends: atLeast(oldest, "kubelot-common")},
		}
		if name == "resource" {
			// It sleeps while nothing needs it.
			daemon.programs = append(daemon.programs, "kubelot-doze")
		}
		switch name {
		case "bus":
		case "volume":
			daemon.relations.depends = slices.Concat(daemon.relations.depends, atLeast(oldest, "kubelot-bus"), mount())
			daemon.relations.suggests = clients()
		default:
			daemon.relations.depends = append(daemon.relations.depends, atLeast(oldest, "kubelot-bus")...)
		}
		if summaries[name] == "" {
			return nil, fmt.Errorf("say in tools/packages/list.go what the daemon %s does", name)
		}
		meta.relations.depends = append(meta.relations.depends, atLeast(version, daemon.name)...)
		compact.relations.conflicts = append(compact.relations.conflicts, both(daemon.name)...)
		all = append(all, daemon)
	}
	return all, nil
}

// kubelet is what kubeadm takes for the kubelet. Its program is the command line.
func kubelet(version, previous string) *pack {
	kubernetes := cli.KubernetesVersion[1:]
	return &pack{
		name: "kubelot-kubelet", summary: "kubelot in the kubelet's place, for kubeadm",
		text: "The program kubelet and kubelet.service, by which kubeadm and\nothers start and stop the crew.",
		part: deploy.Kubelet, kind: "kubelet", links: map[string]string{
			"/usr/bin/kubelet": "../lib/kubelot/bin/kubelot", "/usr/share/man/man1/kubelet.1.gz": "kubelot.1.gz",
		},
		// rpm takes the kubelet's own away with the package kubelet, unless this one has it too. dpkg leaves it.
		rpmConfig: map[string]string{"/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=\n"},
		relations: relations{
			depends: slices.Concat(atLeast(previous, "kubelot-common"), atLeast(version, "kubelot-cli"),
				[]relation{{"kubelot | " + crewName, crewName}, {"systemd (>= 249)", "systemd >= 249"}}),
			provides:  []relation{{"kubelet (= " + kubernetes + ")", "kubelet = " + kubernetes}},
			conflicts: both("kubelet"), replaces: both("kubelet"),
		},
	}
}

// mount is the package with the programs that volumes are mounted with.
func mount() []relation { return []relation{{"mount", "util-linux"}} }

// clients mount volumes of the network. They are no more than suggested: they bring daemons, of which rpcbind listens
// to everybody.
func clients() []relation {
	return []relation{{"nfs-common", "nfs-utils"}, {"open-iscsi", "iscsi-initiator-utils"}}
}

// packages builds what the packages are made of.
func (s *stage) packages(ctx context.Context) ([]*pack, error) {
	version, err := packageVersion(s.version)
	if err != nil {
		return nil, err
	}
	previous, err := previousRelease(s.root, s.version)
	if err != nil {
		return nil, err
	}
	all, err := list(version, previous)
	if err != nil {
		return nil, err
	}
	for _, name := range s.only {
		if !slices.ContainsFunc(all, func(p *pack) bool { return p.name == name }) {
			return nil, fmt.Errorf("there is no package %q", name)
		}
	}
	if len(s.only) > 0 {
		all = slices.DeleteFunc(all, func(p *pack) bool { return !slices.Contains(s.only, p.name) })
	}
	for _, p := range all {
		for _, program := range p.programs {
			if _, err := s.build(ctx, program); err != nil {
				return nil, err
			}
		}
		doc := path.Join("/usr/share/doc", p.name)
		p.files = map[string][]byte{path.Join(doc, "copyright"): copyright()}
		if p.files[path.Join(doc, "changelog.Debian.gz")], err = s.changelog(p.name, version); err != nil {
			return nil, err
		}
		if p.completion {
			if err := s.commandLine(p.files, filepath.Join(s.dir, "man")); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}
