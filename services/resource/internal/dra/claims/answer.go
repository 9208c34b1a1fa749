package claims

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// The calls of a driver, in the words of its API.
const (
	CallPrepare   = "NodePrepareResources"
	CallUnprepare = "NodeUnprepareResources"
)

// Answer is what a driver says about one claim.
type Answer struct {
	Devices []Device
	// Error says why it has failed.
	Error string
}

// Answers are what a driver says about all claims of a call, by their UIDs.
type Answers map[types.UID]Answer

// Answered takes the end of a call about these claims: failed, or what the driver says about each. A claim about which
// it says yes is prepared, or unprepared, whatever it says of the others. The error is for the pod's user.
func Answered(call, driver string, asked []*Claim, answers Answers, failed error) error {
	for _, c := range asked {
		c.Drivers[driver].Calling = false
	}
	if failed != nil {
		return fmt.Errorf("%s: %w (DRA driver %s)", call, failed, driver)
	}
	var problems []string
	if problem := stranger(asked, answers); problem != "" {
		problems = append(problems, call+problem)
		answers = nil // it doesn't know what it says
	} else if skipped := len(asked) - len(answers); skipped > 0 {
		problems = append(problems, fmt.Sprintf("%s skipped %d ResourceClaims", call, skipped))
	}
	for _, c := range asked {
		answer, ok := answers[c.UID]
		switch {
		case !ok:
		case answer.Error != "":
			problems = append(problems, fmt.Sprintf("%s failed for ResourceClaim %s: %s", call, c.Name, answer.Error))
		case call == CallPrepare:
			*c.Drivers[driver] = Driver{Standing: Prepared, Devices: answer.Devices}
		default:
			*c.Drivers[driver] = Driver{Standing: Idle, Unanswered: true}
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, ", ") + " (DRA driver " + driver + ")")
	}
	return nil
}

// stranger says of which claim a driver speaks though it wasn't asked about it.
func stranger(asked []*Claim, answers Answers) string {
	for _, uid := range slices.Sorted(maps.Keys(answers)) {
		if !slices.ContainsFunc(asked, func(c *Claim) bool { return c.UID == uid }) {
			return fmt.Sprintf(" returned result for unknown claim UID %.80q", uid)
		}
	}
	return ""
}
