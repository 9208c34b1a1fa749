package cli

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/why"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/deploy"
)

// completer names what an argument or a flag may be. It says nothing where it can't find out, in at most
// completePatience.
type completer func(c *cobra.Command, args []string) []string

// byFlag completes the flags of all commands that have one of these names, and no completion of their own.
var byFlag = map[string]completer{
	"container": containersOfPod, "daemon": daemonNames, "daemons": daemonNames, "namespace": namespaces,
	"pod": podsOfNode, "topic": func(*cobra.Command, []string) []string { return topicNames() }, "without": daemonNames,
}

// byArgument completes the arguments of commands, by the commands' paths.
var byArgument = map[string]struct {
	names completer
	// many is true if there may be more than one.
	many bool
}{
	"kubelot why":         {names: podsOrNode},
	"kubelot restart":     {names: podsOfNode},
	"kubelot retry":       {names: podsOfNode},
	"kubelot delete":      {names: staticPodNames, many: true},
	"kubelot image pull":  {names: imagesOfNode, many: true},
	"kubelot image pin":   {names: imagesOfNode, many: true},
	"kubelot image unpin": {names: imagesOfNode, many: true},
	"kubelot install":     {names: daemonNames, many: true},
	"kubelot upgrade":     {names: versionOrDaemons, many: true},
}

// completeNames offers the names of the node's things to the shell's completion, in all commands that take them.
func completeNames(c *cobra.Command) {
	for name, names := range byFlag {
		if _, own := c.GetFlagCompletionFunc(name); c.Flags().Lookup(name) == nil || own {
			continue
		}
		if err := c.RegisterFlagCompletionFunc(name, completion(names)); err != nil {
			panic(err) // it was looked for above
		}
	}
	if argument, ok := byArgument[c.CommandPath()]; ok {
		offer := completion(argument.names)
		c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 && !argument.many {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names, directive := offer(c, args, begun)
			return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
		}
	}
	for _, sub := range c.Commands() {
		completeNames(sub)
	}
}

// completion is a completer as cobra wants it: with those names that begin with what is there.
func completion(names completer) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		all := slices.DeleteFunc(names(c, args), func(name string) bool { return !strings.HasPrefix(name, begun) })
		slices.Sort(all)
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// flagValue is the value of a command's flag; empty if it has no such flag.
func flagValue(c *cobra.Command, name string) string {
	if f := c.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// nodeState is what the bus says of the node's pods; nothing for a command without a bus, or a node without a crew.
func nodeState(c *cobra.Command) pods.State {
	at := busFlags{runDir: flagValue(c, "run-dir"), server: flagValue(c, "server")}
	if at.runDir == "" {
		return pods.State{}
	}
	parent := c.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completePatience)
	defer cancel()
	conn, err := at.connect(ctx)
	if err != nil {
		return pods.State{}
	}
	defer conn.Close()
	state, err := pods.Read(ctx, conn)
	if err != nil {
		return pods.State{}
	}
	return state
}

// listed are the pods of a state that are chosen, as namespace/name.
func listed(state pods.State, chosen func(topic.Pod) bool) []string {
	var names []string
	for _, u := range state.Updates {
		if u.Pod != nil && chosen(u) {
			names = append(names, u.Pod.Namespace+"/"+u.Pod.Name)
		}
	}
	return names
}

func podsOfNode(c *cobra.Command, _ []string) []string {
	return listed(nodeState(c), func(topic.Pod) bool { return true })
}

func podsOrNode(c *cobra.Command, args []string) []string {
	return append(podsOfNode(c, args), whyNode)
}

func staticPodNames(c *cobra.Command, _ []string) []string {
	return listed(nodeState(c), func(u topic.Pod) bool { return u.Source == topic.SourceFile })
}

func namespaces(c *cobra.Command, _ []string) []string {
	found := map[string]bool{}
	for _, u := range nodeState(c).Updates {
		if u.Pod != nil {
			found[u.Pod.Namespace] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

// containersOfPod are those of the pod that the arguments or --pod name; those of all pods where none is named.
func containersOfPod(c *cobra.Command, args []string) []string {
	state, name := nodeState(c), flagValue(c, "pod")
	if len(args) > 0 {
		name = args[0]
	}
	return containerNames(state, name)
}

func containerNames(state pods.State, pod string) []string {
	var names []string
	add := func(p *corev1.Pod) {
		for container := range podspec.Containers(&p.Spec) {
			names = append(names, container.Name)
		}
	}
	if pod != "" {
		ref, err := why.Find(why.Snapshot{State: state}, pod)
		if u := state.Updates[ref.UID]; err == nil && u.Pod != nil {
			add(u.Pod)
		}
		return names
	}
	for _, u := range state.Updates {
		if u.Pod != nil {
			add(u.Pod)
		}
	}
	return names
}

func daemonNames(*cobra.Command, []string) []string {
	names, err := deploy.Daemons()
	if err != nil {
		return nil
	}
	return names
}

// versionOrDaemons are the installed versions, and behind the version that is chosen the daemons.
func versionOrDaemons(c *cobra.Command, args []string) []string {
	if len(args) > 0 {
		return daemonNames(c, args)
	}
	bin := filepath.Clean(flagValue(c, "bin-dir"))
	entries, err := os.ReadDir(filepath.Dir(bin))
	if err != nil {
		return nil
	}
	var versions []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != filepath.Base(bin) {
			versions = append(versions, e.Name())
		}
	}
	return versions
}

func imagesOfNode(c *cobra.Command, _ []string) []string {
	parent := c.Context()
	if parent == nil {
		parent = context.Background()
	}
	return imageNames(parent, runtimeFlags{
		runDir: flagValue(c, "run-dir"), endpoint: flagValue(c, "container-runtime-endpoint"),
	})
}
