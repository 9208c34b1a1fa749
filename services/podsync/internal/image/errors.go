package image

import (
	"fmt"
	"strings"
	"time"
)

// Reasons of Errors: the waiting reasons that users and tools know from the kubelet.
const (
	ReasonPull        = "ErrImagePull"
	ReasonBackOff     = "ImagePullBackOff"
	ReasonNeverPull   = "ErrImageNeverPull"
	ReasonInvalidName = "InvalidImageName"
	ReasonInspect     = "ImageInspectError"
	// ReasonUnavailable and ReasonSignature are the runtime's own: CRI api.proto, and the cri-api errors package.
	ReasonUnavailable = "RegistryUnavailable"
	ReasonSignature   = "SignatureValidationFailed"
)

// Error is why a container has no image.
type Error struct {
	// Reason is the container's waiting reason: one of the constants.
	Reason string
	// Message is the container's waiting message.
	Message string
	// RetryAt is when the next try makes sense; zero when only a change of the spec helps.
	RetryAt time.Time
}

// Error gives reason and message.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// explain finds the reason in the runtime's answer, which begins with it where it is one of the runtime's own.
func explain(image, text string) (reason, message string) {
	for reason, why := range map[string]string{
		ReasonUnavailable: "the registry is unavailable",
		ReasonSignature:   "the signature validation failed",
	} {
		if rest, ok := strings.CutPrefix(text, reason); ok {
			return reason, fmt.Sprintf("image pull failed for %s because %s%s", image, why, rest)
		}
	}
	return ReasonPull, text
}
