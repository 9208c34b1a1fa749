package config

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// Each bad input gives one error that names the file or flag, the field and the problem.
func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		base    string
		dropIns map[string]string
		args    []string
		want    []string
	}{
		"duplicate field": {
			base: header, dropIns: map[string]string{"10.conf": header + "maxPods: 1\nmaxPods: 2\n"},
			want: []string{"10.conf", "maxPods", "already"},
		},
		"wrong type": {base: header + "maxPods: many\n", want: []string{"config.yaml", "maxPods"}},
		"not YAML":   {base: header + "a: [", want: []string{"config.yaml", "neither valid YAML nor JSON"}},
		"wrong kind": {base: "apiVersion: v1\nkind: Pod\n", want: []string{`kind "Pod"`}},
		"kind missing": {base: "maxPods: 1\n", want: []string{
			`apiVersion ""`,
			`want "kubelet.config.k8s.io/v1beta1"`,
		}},
		"two documents": {base: header + "---\n" + header, want: []string{"several YAML documents"}},
		"oversized":     {base: header + "# " + strings.Repeat("x", maxFileSize), want: []string{"larger than"}},
		"absent file":   {args: []string{"--config=/does/not/exist"}, want: []string{"/does/not/exist"}},
		"absent drop-in dir": {
			args: []string{"--config-dir=/does/not/exist"},
			want: []string{"drop-in directory /does/not/exist"},
		},
		"bad drop-in": {
			base: header, dropIns: map[string]string{"10.conf": header + "maxPods: many\n"},
			want: []string{"10.conf", "maxPods"},
		},
		"invalid value names its origin": {
			base: header, dropIns: map[string]string{"10.conf": header + "maxPods: -1\n"},
			want: []string{"maxPods (set in ", "10.conf) is -1: must not be negative"},
		},
		"all problems at once": {
			base: header + "cgroupDriver: x\naddress: why\n",
			want: []string{"cgroupDriver", "address"},
		},
		"bad flag value": {args: []string{"--max-pods=many"}, want: []string{"--max-pods", "whole number"}},
		"bad node IP": {
			args: []string{"--node-ip=1.2.3.4,5.6.7.8"},
			want: []string{"--node-ip", "one IPv4 and one IPv6"},
		},
		"bad label": {args: []string{"--node-labels=foo.kubernetes.io/a=b"}, want: []string{
			"unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [foo.kubernetes.io/a]",
			"must begin with an allowed prefix (kubelet.kubernetes.io, node.kubernetes.io)",
		}},
		"bad taint": {
			args: []string{"--register-with-taints=a=b:Never"},
			want: []string{"registerWithTaints", "a=b:Never"},
		},
		"bad endpoint": {
			args: []string{"--container-runtime-endpoint=tcp://x"},
			want: []string{"containerRuntimeEndpoint", "unix socket"},
		},
		"bad eviction": {args: []string{"--eviction-hard=memory<1Gi"}, want: []string{
			"evictionHard.memory",
			"no such eviction signal",
		}},
		"bad percentage": {
			args: []string{"--eviction-hard=memory.available<101%"},
			want: []string{"evictionHard.memory.available", "0% to 100%"},
		},
		"bad log size": {base: header + "containerLogMaxSize: much\n", want: []string{
			"containerLogMaxSize",
			"a negative one switches rotation off",
		}},
		"bad name":           {args: []string{"--hostname-override=a_b"}, want: []string{`node name "a_b"`}},
		"bad cloud provider": {args: []string{"--cloud-provider=aws"}, want: []string{"--cloud-provider"}},
		"bootstrap alone":    {args: []string{"--bootstrap-kubeconfig=x"}, want: []string{"--kubeconfig"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.base, c.dropIns, c.args...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	c := mustLoad(t, header+"memoryThrottlingFactor: 0.5\nreadOnlyPort: 0\nevictionPressureTransitionPeriod: "+
		"0s\nfeatureGates: {A: true}\n"+
		"enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /kube\nenableControllerAttachDetach: "+
		"false\nmemorySwap: {swapBehavior: LimitedSwap}\nsyncFrequency: 10s\n", nil,
		"--pod-infra-container-image=pause", "--fail-swap-on=false")
	joined := strings.Join(c.Warnings, "\n")
	for _, want := range []string{
		"--pod-infra-container-image", "featureGates",
		"enableControllerAttachDetach (set in ", "part of its effect only", "syncFrequency",
	} {
		if !strings.Contains(joined, want) {
			t.Errorf("no warning names %s:\n%s", want, joined)
		}
	}
	if len(c.Warnings) != 4 {
		t.Errorf("fields that work and values that equal the default must not warn:\n%s", joined)
	}
}

// The kubelet ignores unknown fields of drop-ins too.
func TestUnknownFieldsOfDropInsAreIgnored(t *testing.T) {
	c := mustLoad(t, header, map[string]string{
		"10.conf": header + "maxPod: 1\nMaxPods: 7\nauthentication: {x509: {clientCA: x}}\nmaxPods: 5\n",
	})
	if c.Kubelet.MaxPods != 5 || len(c.Warnings) != 3 {
		t.Errorf("maxPods %d, warnings %q", c.Kubelet.MaxPods, c.Warnings)
	}
	joined := strings.Join(c.Warnings, "\n")
	for _, want := range []string{"10.conf: ", `"maxPod"`, `"MaxPods"`, `"authentication.x509.clientCA"`} {
		if !strings.Contains(joined, want) {
			t.Errorf("no warning has %s:\n%s", want, joined)
		}
	}
}

// What the kubelet ignores in its file doesn't keep a node from starting.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	c := mustLoad(t, header+"noSuchField: 1\nMaxPods: 7\nauthentication: {anonymous: {nope: true}}\nmaxPods: "+
		"5\nmaxPods: 6\n", nil)
	if c.Kubelet.MaxPods != 6 || len(c.Warnings) != 4 {
		t.Errorf("maxPods %d, warnings %q", c.Kubelet.MaxPods, c.Warnings)
	}
	for _, warning := range c.Warnings {
		if !strings.Contains(warning, "config.yaml: ") || !strings.Contains(warning, "it is ignored") {
			t.Errorf("warning %q", warning)
		}
	}
}

// Most daemons aren't root, so the error of a file that they can't read says what to do.
func TestUnreadableFile(t *testing.T) {
	err := unreadable("/etc/c.yaml", &fs.PathError{Op: "open", Path: "/etc/c.yaml", Err: syscall.EACCES})
	const want = "configuration file: open /etc/c.yaml: permission denied: kubelot's daemons read it as members of the " +
		"group kubelot: chgrp kubelot /etc/c.yaml && chmod 0640 /etc/c.yaml"
	if err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if err := unreadable("/c", fs.ErrNotExist); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "chgrp") {
		t.Errorf("a file that isn't there: %v", err)
	}
}
