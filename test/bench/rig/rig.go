// Package rig is the machine part of the measurements that need no rival: one node under kubelot with a control
// plane of its own, on containerd or on the scripted runtime.
//
// Reads: .bin, or the directory that KUBELOT_BIN names. Writes and owns: the test bed.
//
// Guarantees: Stop leaves nothing behind; the daemons serve profiles, but sample no allocations, which takes memory
// that they don't take on a real node.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"k8s.io/client-go/kubernetes"

	"kubelot.dev/test/bench/churn"
	"kubelot.dev/test/bench/crew"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/node"
)

// The container runtimes.
const (
	Containerd = "containerd"
	Scripted   = "scripted"
)

// Options say what the node is.
type Options struct {
	Dir     string // of the bed, whose logs stay; empty for a temporary one
	Runtime string
	MaxPods int
	// Args are appended to kubelot's command line.
	Args []string
}

// Rig is a running node.
type Rig struct {
	Cluster *cluster.Cluster
	Node    *node.Node
	Crew    crew.Crew
}

// Start runs the node and waits until it is Ready.
func Start(ctx context.Context, o Options) (*Rig, error) {
	if o.Runtime != Containerd && o.Runtime != Scripted {
		return nil, fmt.Errorf("no runtime %q; there are %s and %s", o.Runtime, Containerd, Scripted)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: o.Dir, Out: os.Stderr, ControlPlane: true, Scripted: o.Runtime == Scripted,
	})
	if err != nil {
		return nil, err
	}
	n, err := node.Start(ctx, c, o.node())
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return &Rig{Cluster: c, Node: n, Crew: crew.Crew{PID: n.PID(), RunDir: n.RunDir(), RootDir: n.RootDir}}, nil
}

// node is how the crew is run. With --profiling it says what its heaps have in use after a collection; the environment
// ends the sampling of allocations that comes with that.
func (o Options) node() node.Options {
	args := append([]string{"--profiling", "--max-pods=" + strconv.Itoa(o.MaxPods)}, o.Args...)
	if dir := os.Getenv("KUBELOT_BIN"); dir != "" {
		args = append(args, "--bin-dir="+dir)
	}
	return node.Options{
		Agent: node.Kubelot, Name: "rig", ExtraArgs: args, ExtraEnv: []string{"GODEBUG=memprofilerate=0"},
	}
}

// Churn begins to have pods come and go on the node.
func (r *Rig) Churn(ctx context.Context, kinds []churn.Kind, parallel int) (*churn.Churn, error) {
	config, err := r.Cluster.ControlPlane.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("churn: %w", err)
	}
	return churn.Start(ctx, churn.Options{
		Client: client, Namespace: "churn", Node: r.Node.Name,
		Image: images.BusyboxRef, Kinds: kinds, Parallel: parallel,
	})
}

// Stop ends all of it.
func (r *Rig) Stop() error {
	r.Node.Stop()
	return r.Cluster.Stop()
}
