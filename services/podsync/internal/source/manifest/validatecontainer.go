package manifest

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"kubelot.dev/daemon/podspec"
)

func validateContainers(s *corev1.PodSpec, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), "a pod needs at least one container"))
	}
	names := map[string]bool{}
	ports := map[hostPort]bool{}
	grace := s.TerminationGracePeriodSeconds
	for i := range s.InitContainers {
		c, here := &s.InitContainers[i], at.Child("initContainers").Index(i)
		errs = append(errs, validateContainer(c, names, volumes, here)...)
		errs = append(errs, validateProbes(c, grace, here)...)
		if !podspec.IsSidecar(c) {
			errs = append(errs, onlyRunning(c, here)...)
		} else {
			errs = append(errs, hostPorts(c, ports, here)...)
		}
	}
	for i := range s.Containers {
		c, here := &s.Containers[i], at.Child("containers").Index(i)
		errs = append(errs, validateContainer(c, names, volumes, here)...)
		errs = append(errs, validateProbes(c, grace, here)...)
		errs = append(errs, hostPorts(c, ports, here)...)
		if s.HostNetwork {
			errs = append(errs, hostNetworkPorts(c, here)...)
		}
	}
	return errs
}

// onlyRunning: a container that runs to its end before the others has no probes and no hooks.
func onlyRunning(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(name string, set bool) {
		if set {
			errs = append(errs, field.Forbidden(at.Child(name),
				"may not be set for init containers without restartPolicy Always"))
		}
	}
	forbid("lifecycle", c.Lifecycle != nil)
	forbid("livenessProbe", c.LivenessProbe != nil)
	forbid("readinessProbe", c.ReadinessProbe != nil)
	forbid("startupProbe", c.StartupProbe != nil)
	return errs
}

func validateContainer(c *corev1.Container, names map[string]bool, volumes map[string]*corev1.Volume,
	at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	switch {
	case c.Name == "":
		errs = append(errs, field.Required(at.Child("name"), ""))
	case names[c.Name]:
		errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
	default:
		errs = append(errs, dnsLabel(c.Name, at.Child("name"))...)
	}
	names[c.Name] = true
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(at.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(at.Child("image"), c.Image, "must not begin or end with white space"))
	}
	errs = append(errs, oneOf(c.ImagePullPolicy, at.Child("imagePullPolicy"),
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, oneOf(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	if c.RestartPolicy != nil {
		errs = append(errs, oneOf(*c.RestartPolicy, at.Child("restartPolicy"), corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)...)
	}
	errs = append(errs, validatePorts(c.Ports, at.Child("ports"))...)
	errs = append(errs, validateEnv(c, at)...)
	errs = append(errs, validateMounts(c, volumes, at)...)
	errs = append(errs, validateResources(&c.Resources, at.Child("resources"))...)
	errs = append(errs, validateSecurity(c.SecurityContext, at.Child("securityContext"))...)
	return errs
}

func validatePorts(ports []corev1.ContainerPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		here := at.Index(i)
		if p.Name != "" {
			errs = append(errs, messages(validation.IsValidPortName(p.Name), p.Name, here.Child("name"))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(here.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		errs = append(errs, portNumber(int(p.ContainerPort), here.Child("containerPort"))...)
		if p.HostPort != 0 {
			errs = append(errs, portNumber(int(p.HostPort), here.Child("hostPort"))...)
		}
		errs = append(errs, oneOf(p.Protocol, here.Child("protocol"),
			corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		if p.HostIP != "" {
			errs = append(errs, address(p.HostIP, here.Child("hostIP"))...)
		}
	}
	return errs
}

func portNumber(port int, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, m := range validation.IsValidPortNum(port) {
		errs = append(errs, field.Invalid(at, port, m))
	}
	return errs
}

// hostPort is one port of the machine.
type hostPort struct {
	ip       string
	port     int32
	protocol corev1.Protocol
}

func hostPorts(c *corev1.Container, taken map[hostPort]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range c.Ports {
		k := hostPort{p.HostIP, p.HostPort, p.Protocol}
		if p.HostPort == 0 {
			continue
		}
		if taken[k] {
			errs = append(errs, field.Duplicate(at.Child("ports").Index(i).Child("hostPort"), p.HostPort))
		}
		taken[k] = true
	}
	return errs
}

func hostNetworkPorts(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range c.Ports {
		if p.HostPort != p.ContainerPort {
			errs = append(errs, field.Invalid(at.Child("ports").Index(i).Child("hostPort"), p.HostPort,
				"must be the containerPort on the host network"))
		}
	}
	return errs
}

func validateEnv(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range c.Env {
		here := at.Child("env").Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(here.Child("name"), ""))
		} else {
			errs = append(errs, messages(validation.IsRelaxedEnvVarName(e.Name), e.Name, here.Child("name"))...)
		}
		if e.ValueFrom == nil {
			continue
		}
		if e.Value != "" {
			errs = append(errs, field.Invalid(here.Child("valueFrom"), "", "may not be set together with value"))
		}
		errs = append(errs, validateEnvSource(e.ValueFrom, here.Child("valueFrom"))...)
	}
	return errs
}

func validateEnvSource(from *corev1.EnvVarSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	n := count(from.FieldRef != nil, from.ResourceFieldRef != nil, from.ConfigMapKeyRef != nil,
		from.SecretKeyRef != nil, from.FileKeyRef != nil)
	if n != 1 {
		errs = append(errs, field.Invalid(at, n, "must have exactly one source"))
	}
	if from.FieldRef != nil {
		errs = append(errs, validateFieldRef(from.FieldRef, envFields, at.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		errs = append(errs, validateResourceRef(from.ResourceFieldRef, at.Child("resourceFieldRef"))...)
	}
	return errs
}

func count(set ...bool) (n int) {
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}

func validateMounts(c *corev1.Container, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := map[string]bool{}
	for i, m := range c.VolumeMounts {
		here := at.Child("volumeMounts").Index(i)
		switch {
		case m.Name == "":
			errs = append(errs, field.Required(here.Child("name"), ""))
		case volumes[m.Name] == nil:
			errs = append(errs, field.NotFound(here.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(here.Child("mountPath"), ""))
		case paths[m.MountPath]:
			errs = append(errs, field.Invalid(here.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
		errs = append(errs, subPath(m.SubPath, here.Child("subPath"))...)
		errs = append(errs, subPath(m.SubPathExpr, here.Child("subPathExpr"))...)
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(here.Child("subPathExpr"), m.SubPathExpr, "may not be set together with subPath"))
		}
		if m.MountPropagation != nil {
			errs = append(errs, oneOf(*m.MountPropagation, here.Child("mountPropagation"), corev1.MountPropagationNone,
				corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)...)
		}
	}
	return errs
}

func subPath(p string, at *field.Path) field.ErrorList {
	if path.IsAbs(p) {
		return field.ErrorList{field.Invalid(at, p, "must be a relative path")}
	}
	return noBacksteps(p, at)
}

func noBacksteps(p string, at *field.Path) field.ErrorList {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
		}
	}
	return nil
}

func validateSecurity(sc *corev1.SecurityContext, at *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := userID(sc.RunAsUser, at.Child("runAsUser"))
	errs = append(errs, userID(sc.RunAsGroup, at.Child("runAsGroup"))...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	if sc.ProcMount != nil {
		errs = append(errs, oneOf(*sc.ProcMount, at.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
	}
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation && sc.Privileged != nil && *sc.Privileged {
		errs = append(errs, field.Invalid(at.Child("allowPrivilegeEscalation"), false,
			"a privileged container can always escalate"))
	}
	return errs
}
