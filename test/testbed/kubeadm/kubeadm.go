// Package kubeadm makes the control plane of a test bed one that kubeadm's nodes can join, by Kubernetes' own kubeadm.
//
// Reads: .bin. Writes: <bed>/kubeadm.yaml, and at the API server what kubeadm init leaves there for nodes:
// kubeadm-config, kubelet-config, cluster-info, the rights of bootstrap tokens. Owns: nothing that runs.
package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"

	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/tools"
)

// DropIn is the drop-in of kubelet.service in kubeadm's own package, and Unit the kubelet's unit in the kubelet's.
const (
	DropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`
	Unit = `[Unit]
Description=the kubelet of Kubernetes
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
`
)

// Cluster is a control plane as kubeadm would have made it.
type Cluster struct {
	kubeadm, kubeconfig, config string
}

// config is what kubeadm would have been given.
const config = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[1]s, bindPort: %[2]s}
nodeRegistration: {name: host, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[3]s
controlPlaneEndpoint: "%[1]s:%[2]s"
networking: {serviceSubnet: 10.96.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
%[4]s`

// Prepare has kubeadm put into the control plane what a node asks for that joins. kubelet is what the kubelets'
// configuration has besides kubeadm's defaults. The controllers are restarted with the flags, and with those
// controllers that a cluster of kubeadm needs.
func Prepare(ctx context.Context, c *cluster.Cluster, kubelet string, flags ...string) (*Cluster, error) {
	kubeadm, err := c.Tools.EnsureKubeadm(ctx)
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--controllers=*,bootstrapsigner,tokencleaner")
	if err := c.ControlPlane.RestartControllers(ctx, flags...); err != nil {
		return nil, err
	}
	at, err := url.Parse(c.ControlPlane.URL)
	if err != nil {
		return nil, fmt.Errorf("address of the control plane: %w", err)
	}
	k := &Cluster{kubeadm: kubeadm, kubeconfig: c.ControlPlane.AdminKubeconfig(), config: c.Bed.Path("kubeadm.yaml")}
	text := fmt.Sprintf(config, at.Hostname(), at.Port(), tools.KubernetesVersion, kubelet)
	if err := os.WriteFile(k.config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write kubeadm's configuration: %w", err)
	}
	for _, phase := range []string{"upload-config all", "bootstrap-token --skip-token-print"} {
		args := slices.Concat([]string{"init", "phase"}, strings.Fields(phase), []string{"--config", k.config})
		if _, err := k.run(ctx, args...); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *Cluster) run(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, k.kubeadm, append(args, "--kubeconfig", k.kubeconfig)...))
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	var said []byte
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		said = exit.Stderr
	}
	return "", fmt.Errorf("%s: %w: %s%s", strings.Join(cmd.Args, " "), err, out, said)
}

// Join is what a machine joins with.
type Join struct {
	Address, Token string
	Hash           string // of the cluster's authority, without sha256:
}

// Join makes a token, and reads the command that kubeadm prints for it.
func (k *Cluster) Join(ctx context.Context) (Join, error) {
	out, err := k.run(ctx, "token", "create", "--print-join-command")
	if err != nil {
		return Join{}, err
	}
	return parseJoin(out)
}

func parseJoin(command string) (Join, error) {
	words := strings.Fields(command)
	if len(words) != 7 || words[0] != "kubeadm" || words[1] != "join" || words[3] != "--token" ||
		words[5] != "--discovery-token-ca-cert-hash" {
		return Join{}, fmt.Errorf("kubeadm prints the command %q", command)
	}
	return Join{Address: words[2], Token: words[4], Hash: strings.TrimPrefix(words[6], "sha256:")}, nil
}

// Command is what kubeadm has printed.
func (j Join) Command() string {
	return fmt.Sprintf("kubeadm join %s --token %s --discovery-token-ca-cert-hash sha256:%s", j.Address, j.Token, j.Hash)
}

// StaticPods are the parts of a control plane that kubeadm runs as static pods.
var StaticPods = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// Images are the images of these that kubeadm asks for, by what they run.
func Images(ctx context.Context, kubeadm string) (map[string]string, error) {
	out, err := output(exec.CommandContext(ctx, kubeadm, "config", "images", "list", "--kubernetes-version",
		tools.KubernetesVersion))
	if err != nil {
		return nil, err
	}
	return parseImages(out)
}

func parseImages(out string) (map[string]string, error) {
	references := map[string]string{}
	for _, ref := range strings.Fields(out) {
		name, _, _ := strings.Cut(ref[strings.LastIndex(ref, "/")+1:], ":")
		if slices.Contains(StaticPods, name) {
			references[name] = ref
		}
	}
	if len(references) != len(StaticPods) {
		return nil, fmt.Errorf("kubeadm's images %q lack some of %q", out, StaticPods)
	}
	return references, nil
}
