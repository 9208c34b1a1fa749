// Package controlplane runs the control plane of a test bed: etcd,
// kube-apiserver, kube-scheduler and kube-controller-manager of the release in
// tools.KubernetesVersion.
//
// Reads: .bin, the bed. Writes: <bed>/pki, <bed>/etcd, <bed>/*.kubeconfig.
// Owns: the four processes.
//
// Guarantees: Start returns when /readyz succeeds and the default namespace's
// service account exists, so that pods can be created at once. The API server
// can be stopped and started again at the same address with its data.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/tools"
)

const (
	// startTimeout only bounds a failure.
	startTimeout = 6 * time.Minute
	// apiserverTries is how often the API server is started until it is ready.
	apiserverTries = 3
	// stopGrace is short: the API server would wait for its watchers.
	stopGrace = 2 * time.Second
	// quitGrace is what the kubelet gives the API server's static pod.
	quitGrace = 30 * time.Second
)

// ControlPlane is a running control plane.
type ControlPlane struct {
	// URL of the API server; reachable from the host and from pods.
	URL string

	bed     *bed.Bed
	box     *tools.Box
	ca      *authority
	client  *http.Client // the administrator's
	etcdURL string
	peerURL string
	port    int

	// proxied is true where the API server reaches nodes and pods by a proxy.
	proxied bool

	etcd, apiserver, scheduler, controllers *proc.Process
}

// Start runs a new control plane. The bed must have been set up: the API
// server listens on the bridge's address. If it is proxied it reaches nodes and pods by the proxy at ProxySocket alone.
func Start(ctx context.Context, b *bed.Bed, box *tools.Box, proxied bool) (*ControlPlane, error) {
	c := &ControlPlane{bed: b, box: box, proxied: proxied}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("waited %v", startTimeout))
	defer cancel()
	if err := c.launch(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Attach is the control plane of a bed that is attached to a node: it can be asked, and not be started or stopped.
func Attach(b *bed.Bed) (*ControlPlane, error) {
	c := &ControlPlane{bed: b, ca: &authority{dir: b.Path("pki")}}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	c.URL = config.Host
	c.client, err = c.connect()
	return c, err
}

// prepare chooses ports and writes keys, certificates and kubeconfigs.
func (c *ControlPlane) prepare() error {
	ports, err := c.bed.Ports(3)
	if err != nil {
		return err
	}
	c.port = ports[0]
	c.URL = "https://" + net.JoinHostPort(c.bed.Gateway.String(), strconv.Itoa(c.port))
	c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	c.peerURL = fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	if c.ca, err = newAuthority(c.bed.Path("pki")); err != nil {
		return err
	}
	if err := c.issueServers(); err != nil {
		return err
	}
	if _, err := newKey(c.ca.path("service-account.key")); err != nil {
		return fmt.Errorf("create service-account key: %w", err)
	}
	if c.proxied {
		if err := os.WriteFile(c.egressConfig(), []byte(egressConfig+c.ProxySocket()+"\n"), 0o644); err != nil {
			return fmt.Errorf("configure the proxy of the API server: %w", err)
		}
	}
	return errors.Join(
		c.writeKubeconfig(c.AdminKubeconfig(), "kubernetes-admin", "system:masters"),
		c.writeKubeconfig(c.componentKubeconfig("kube-scheduler"), "system:kube-scheduler"),
		c.writeKubeconfig(c.componentKubeconfig("kube-controller-manager"), "system:kube-controller-manager"),
	)
}

func (c *ControlPlane) issueServers() error {
	return errors.Join(
		c.ca.issue(subject{
			file: "apiserver", name: "kube-apiserver",
			dns: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local",
			},
			ips: []net.IP{net.IPv4(127, 0, 0, 1), c.bed.Gateway.AsSlice(), net.ParseIP(serviceIP)},
		}),
		// How the API server presents itself to the node's port 10250.
		c.ca.issue(subject{
			file: "apiserver-kubelet-client", name: "kube-apiserver-kubelet-client",
			groups: []string{"system:masters"},
		}),
	)
}

// launch starts the components without waiting for each other, as they retry
// on their own; only the API server gives up early without etcd.
func (c *ControlPlane) launch(ctx context.Context) error {
	var err error
	if c.etcd, err = c.start("etcd", c.etcdArgs()); err != nil {
		return err
	}
	if err := c.etcd.WaitReady(ctx, c.etcdReady); err != nil {
		return err
	}
	if c.client, err = c.connect(); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	if c.scheduler, err = c.start("kube-scheduler", c.schedulerArgs()); err != nil {
		return err
	}
	if c.controllers, err = c.start("kube-controller-manager", c.controllerArgs()); err != nil {
		return err
	}
	if err := c.allowBootstrap(ctx); err != nil {
		return err
	}
	return c.controllers.WaitReady(ctx, c.controllersReady)
}

func (c *ControlPlane) start(name string, args []string) (*proc.Process, error) {
	return proc.Start(proc.Spec{Name: name, Path: c.box.Path(name), Args: args, Dir: c.bed.Logs()})
}

// AdminKubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) AdminKubeconfig() string { return c.bed.Path("admin.kubeconfig") }

// CAFile is the path of the CA certificate that all servers and clients have in common.
func (c *ControlPlane) CAFile() string { return c.ca.path("ca.crt") }

func (c *ControlPlane) componentKubeconfig(name string) string {
	return c.ca.path(name + ".kubeconfig")
}

// StopAPIServer takes the API server away, with SIGKILL: connections break as
// in a crash. etcd and the controllers stay.
func (c *ControlPlane) StopAPIServer() { c.apiserver.Kill() }

// QuitAPIServer asks the API server to end, and waits as long as a node of kubeadm does: it answers what it was asked,
// and ends the connections in order.
func (c *ControlPlane) QuitAPIServer() { c.apiserver.Stop(quitGrace) }

// SignalAPIServer sends the API server a signal, such as SIGSTOP.
func (c *ControlPlane) SignalAPIServer(signal syscall.Signal) error {
	return c.apiserver.Signal(signal)
}

// StartAPIServer brings it back at the same address, unless it runs.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	select {
	case <-c.apiserver.Done():
	default:
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("waited %v", startTimeout))
	defer cancel()
	return c.startAPIServer(ctx)
}

// startAPIServer starts the API server and waits until it is ready. It ends by itself where etcd doesn't answer for
// some seconds while it starts, which a busy machine is enough for. On a node of kubeadm it is started again then.
func (c *ControlPlane) startAPIServer(ctx context.Context) (err error) {
	for range apiserverTries {
		if c.apiserver, err = c.start("kube-apiserver", c.apiserverArgs()); err != nil {
			return err
		}
		if err = c.apiserver.WaitReady(ctx, c.apiserverReady); err == nil {
			return nil
		}
		select {
		case <-c.apiserver.Done():
		default:
			return err
		}
	}
	return err
}

// RestartControllers restarts the controller-manager with more flags, such as another --cluster-signing-duration.
func (c *ControlPlane) RestartControllers(ctx context.Context, flags ...string) error {
	c.controllers.Stop(stopGrace)
	var err error
	if c.controllers, err = c.start("kube-controller-manager", append(c.controllerArgs(), flags...)); err != nil {
		return err
	}
	return c.controllers.WaitReady(ctx, c.controllersReady)
}

// Stop ends all components.
func (c *ControlPlane) Stop() {
	c.controllers.Stop(stopGrace)
	c.scheduler.Stop(stopGrace)
	c.apiserver.Stop(stopGrace)
	c.etcd.Stop(stopGrace)
}
