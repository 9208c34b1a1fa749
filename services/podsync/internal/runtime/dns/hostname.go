package dns

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxHostname is the length of a DNS label.
	maxHostname = 63
	// maxNodename is the length of the kernel's field, without the NUL at its end (uname(2)).
	maxNodename = 64
)

// hostname gives a pod's host name and its domain; the domain is empty for a pod without a subdomain.
//
// Source: PodSpec.hostname, PodSpec.subdomain, PodSpec.hostnameOverride (KEP-4762).
func hostname(pod *corev1.Pod, clusterDomain string) (name, domain string, err error) {
	if override := pod.Spec.HostnameOverride; override != nil {
		if msgs := validation.IsDNS1123Subdomain(*override); len(msgs) > 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", *override,
				strings.Join(msgs, ";"))
		}
		name, err := truncate(*override, pod.Name)
		return name, "", err
	}
	name = pod.Name
	if pod.Spec.Hostname != "" {
		if msgs := validation.IsDNS1123Label(pod.Spec.Hostname); len(msgs) > 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", pod.Spec.Hostname, strings.Join(msgs, ";"))
		}
		name = pod.Spec.Hostname
	}
	if name, err = truncate(name, pod.Name); err != nil {
		return "", "", err
	}
	if sub := pod.Spec.Subdomain; sub != "" {
		if msgs := validation.IsDNS1123Label(sub); len(msgs) > 0 {
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", sub, strings.Join(msgs, ";"))
		}
		domain = fmt.Sprintf("%s.%s.svc.%s", sub, pod.Namespace, clusterDomain)
	}
	return name, domain, nil
}

// KernelHostname gives the name that uname(2) reports in the pod: the full name where setHostnameAsFQDN asks for it.
//
// Source: PodSpec.setHostnameAsFQDN (KEP-1797).
func KernelHostname(pod *corev1.Pod, clusterDomain string) (string, error) {
	name, domain, err := hostname(pod, clusterDomain)
	if err != nil {
		return "", err
	}
	if domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return name, nil
	}
	full := name + "." + domain
	if len(full) > maxNodename {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d "+
			"characters is the max, %d characters requested)", full, maxNodename, len(full))
	}
	return full, nil
}

// truncate cuts a name to a label's length; pod names may be longer.
func truncate(name, podName string) (string, error) {
	if len(name) <= maxHostname {
		return name, nil
	}
	cut := strings.TrimRight(name[:maxHostname], "-.")
	if cut == "" {
		return "", fmt.Errorf("hostname for pod %q was invalid: %q", podName, name)
	}
	return cut, nil
}
