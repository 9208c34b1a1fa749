package controlplane

import (
	"context"
	"errors"
	"strconv"
	"time"

	"kubelot.dev/test/testbed/proc"
)

const (
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1" // of the service kubernetes.default
	// clientRate lifts the default limits of 20 to 50 requests per second: a
	// test creates a hundred pods at once and measures the node, not this.
	clientRate = "500"
)

// NodeMonitorGracePeriod is how long a node's lease may lapse before the controller manager marks the node and its pods
// not Ready. By default that is 50 s, which pass while a test has the API server away on a busy machine.
const NodeMonitorGracePeriod = 3 * time.Minute

func (c *ControlPlane) etcdArgs() []string {
	return []string{
		"--data-dir=" + c.bed.Path("etcd"),
		"--listen-client-url=" + c.etcdURL,
		"--listen-peer-url=" + c.peerURL,
	}
}

// egressConfig has the API server reach what runs in the cluster by a proxy, whose socket is named at the end.
const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: `

func (c *ControlPlane) egressConfig() string { return c.bed.Path("egress.yaml") }

// ProxySocket is the socket of the proxy through which a proxied API server connects to nodes and pods, by the method
// CONNECT of HTTP.
func (c *ControlPlane) ProxySocket() string { return c.bed.Path("egress.sock") }

func (c *ControlPlane) apiserverArgs() []string {
	address := c.bed.Gateway.String()
	args := []string{
		"--etcd-servers=" + c.etcdURL,
		"--bind-address=" + address,
		"--advertise-address=" + address,
		"--secure-port=" + strconv.Itoa(c.port),
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth",
		"--allow-privileged",
		"--client-ca-file=" + c.CAFile(),
		"--tls-cert-file=" + c.ca.path("apiserver.crt"),
		"--tls-private-key-file=" + c.ca.path("apiserver.key"),
		"--kubelet-client-certificate=" + c.ca.path("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.ca.path("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + c.ca.path("service-account.key"),
		"--service-account-key-file=" + c.ca.path("service-account.key"),
		"--api-audiences=https://kubernetes.default.svc.cluster.local",
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
		"--profiling=false",
	}
	if c.proxied {
		args = append(args, "--egress-selector-config-file="+c.egressConfig())
	}
	return args
}

func (c *ControlPlane) schedulerArgs() []string {
	return []string{
		"--kubeconfig=" + c.componentKubeconfig("kube-scheduler"),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port=0",
		"--kube-api-qps=" + clientRate,
		"--kube-api-burst=" + clientRate,
	}
}

func (c *ControlPlane) controllerArgs() []string {
	return []string{
		"--kubeconfig=" + c.componentKubeconfig("kube-controller-manager"),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port=0",
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + c.ca.path("service-account.key"),
		"--root-ca-file=" + c.CAFile(),
		"--cluster-signing-cert-file=" + c.CAFile(),
		"--cluster-signing-key-file=" + c.ca.path("ca.key"),
		"--node-monitor-grace-period=" + NodeMonitorGracePeriod.String(),
		"--kube-api-qps=" + clientRate,
		"--kube-api-burst=" + clientRate,
	}
}

func (c *ControlPlane) etcdReady(ctx context.Context) error {
	return proc.Healthy(ctx, c.etcdURL+"/health")
}

func (c *ControlPlane) apiserverReady(ctx context.Context) error {
	return c.Get(ctx, "/readyz", nil)
}

// controllersReady waits for what a first pod needs: the default namespace's
// service account, and the ConfigMap that is mounted with its token.
func (c *ControlPlane) controllersReady(ctx context.Context) error {
	return errors.Join(
		c.Get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil),
		c.Get(ctx, "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", nil),
	)
}
