package kubeadm

import (
	"testing"
)

func TestParseJoin(t *testing.T) {
	const command = "kubeadm join 10.0.0.1:6443 --token abc.def --discovery-token-ca-cert-hash sha256:123"
	j, err := parseJoin(command + " \n")
	if err != nil || j != (Join{Address: "10.0.0.1:6443", Token: "abc.def", Hash: "123"}) || j.Command() != command {
		t.Errorf("%+v, %v", j, err)
	}
	if j, err := parseJoin("kubeadm join 10.0.0.1:6443 --control-plane"); err == nil {
		t.Errorf("another command: %+v", j)
	}
}

func TestParseImages(t *testing.T) {
	const list = "registry.k8s.io/kube-apiserver:v1\nregistry.k8s.io/kube-controller-manager:v1\n" +
		"registry.k8s.io/kube-scheduler:v1\nregistry.k8s.io/kube-proxy:v1\nregistry.k8s.io/coredns/coredns:v2\n" +
		"registry.k8s.io/pause:3\n"
	got, err := parseImages(list + "registry.k8s.io/etcd:3.6.8-0\n")
	if err != nil || len(got) != 4 || got["etcd"] != "registry.k8s.io/etcd:3.6.8-0" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := parseImages(list); err == nil {
		t.Errorf("without etcd: %q", got)
	}
}
