package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateProbes(c *corev1.Container, grace *int64, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, p := range []struct {
		name string
		*corev1.Probe
	}{
		{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe},
	} {
		if p.Probe == nil {
			continue
		}
		errs = append(errs, validateProbe(p.Probe, at.Child(p.name))...)
		if p.name != "readinessProbe" && p.SuccessThreshold != 1 {
			errs = append(errs, field.Invalid(at.Child(p.name, "successThreshold"), p.SuccessThreshold, "must be 1"))
		}
	}
	if c.Lifecycle == nil {
		return errs
	}
	errs = append(errs, validateHook(c.Lifecycle.PostStart, grace, at.Child("lifecycle", "postStart"))...)
	errs = append(errs, validateHook(c.Lifecycle.PreStop, grace, at.Child("lifecycle", "preStop"))...)
	return errs
}

func validateHook(h *corev1.LifecycleHandler, grace *int64, at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	errs := validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, at)
	if h.Sleep != nil && (h.Sleep.Seconds < 0 || grace != nil && h.Sleep.Seconds > *grace) {
		errs = append(errs, field.Invalid(at.Child("sleep", "seconds"), h.Sleep.Seconds,
			"must not be negative, nor longer than terminationGracePeriodSeconds"))
	}
	return errs
}

func validateProbe(p *corev1.Probe, at *field.Path) field.ErrorList {
	errs := validateHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil}, at)
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if n.value < 0 {
			errs = append(errs, field.Invalid(at.Child(n.name), n.value, "must not be negative"))
		}
	}
	if g := p.TerminationGracePeriodSeconds; g != nil && *g <= 0 {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *g, "must be greater than 0"))
	}
	return errs
}

// handler is what probes and hooks do.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func validateHandler(h handler, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch count(h.exec != nil, h.http != nil, h.tcp != nil, h.grpc != nil, h.sleep != nil) {
	case 0:
		errs = append(errs, field.Required(at, "must specify a handler type"))
	case 1:
	default:
		errs = append(errs, field.Forbidden(at, "may not specify more than one handler type"))
	}
	if h.exec != nil && len(h.exec.Command) == 0 {
		errs = append(errs, field.Required(at.Child("exec", "command"), ""))
	}
	if h.http != nil {
		errs = append(errs, probePort(h.http.Port, at.Child("httpGet", "port"))...)
		errs = append(errs, oneOf(h.http.Scheme, at.Child("httpGet", "scheme"), corev1.URISchemeHTTP,
			corev1.URISchemeHTTPS)...)
		for i, header := range h.http.HTTPHeaders {
			errs = append(errs, messages(validation.IsHTTPHeaderName(header.Name), header.Name,
				at.Child("httpGet", "httpHeaders").Index(i).Child("name"))...)
		}
	}
	if h.tcp != nil {
		errs = append(errs, probePort(h.tcp.Port, at.Child("tcpSocket", "port"))...)
	}
	if h.grpc != nil {
		errs = append(errs, portNumber(int(h.grpc.Port), at.Child("grpc", "port"))...)
	}
	return errs
}

func probePort(p intstr.IntOrString, at *field.Path) field.ErrorList {
	if p.Type == intstr.Int {
		return portNumber(int(p.IntVal), at)
	}
	if strings.TrimSpace(p.StrVal) == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return messages(validation.IsValidPortName(p.StrVal), p.StrVal, at)
}
