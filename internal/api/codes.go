package api

import "net/http"

// kind is what is the same of all problems with one code.
type kind struct {
	status int
	title  string
}

// codes is the one table of codes: what people and programs can be told. A
// refusal of a room that says another status than stands here keeps its own: a
// queue that a request addresses is not found (404), one that a body names is
// unprocessable (422).
var codes = map[string]kind{
	// About the request itself.
	"invalid_request":        {http.StatusUnprocessableEntity, "The request is not valid"},
	"unauthorized":           {http.StatusUnauthorized, "A valid token is needed"},
	"forbidden":              {http.StatusForbidden, "The token may not do this"},
	"refused":                {http.StatusForbidden, "The controller refuses this"},
	"not_found":              {http.StatusNotFound, "There is nothing at this address"},
	"method_not_allowed":     {http.StatusMethodNotAllowed, "The method is not possible here"},
	"not_acceptable":         {http.StatusNotAcceptable, "The answer does not exist in that format"},
	"request_timeout":        {http.StatusRequestTimeout, "The body did not arrive in time"},
	"body_too_large":         {http.StatusRequestEntityTooLarge, "The body is too large"},
	"body_incomplete":        {http.StatusBadRequest, "The body ended early"},
	"unsupported_media_type": {http.StatusUnsupportedMediaType, "The body has a format that is not known here"},
	"invalid_cursor":         {http.StatusUnprocessableEntity, "The cursor is not valid"},
	"invalid_filter":         {http.StatusUnprocessableEntity, "The filter is not valid"},
	"invalid_limit":          {http.StatusUnprocessableEntity, "The length of the page is not valid"},
	"revision_conflict":      {http.StatusPreconditionFailed, "The definition has changed meanwhile"},

	// About the service.
	"internal":        {http.StatusInternalServerError, "Something went wrong inside"},
	"unavailable":     {http.StatusServiceUnavailable, "The database cannot be reached at the moment"},
	"not_ready":       {http.StatusServiceUnavailable, "This replica takes no requests at the moment"},
	"outcome_unknown": {http.StatusServiceUnavailable, "Whether the change was made is not known"},

	// Orders.
	"order_not_found":    {http.StatusNotFound, "There is no such order"},
	"order_final":        {http.StatusConflict, "The order has ended"},
	"order_running":      {http.StatusConflict, "The order runs"},
	"order_started":      {http.StatusConflict, "The order has started"},
	"invalid_order":      {http.StatusUnprocessableEntity, "The order is not valid"},
	"too_many_orders":    {http.StatusRequestEntityTooLarge, "Too many orders in one call"},
	"reference_conflict": {http.StatusConflict, "The reference belongs to another order"},
	"key_required":       {http.StatusUnprocessableEntity, "A key is required"},
	"key_not_allowed":    {http.StatusUnprocessableEntity, "The workflow takes no key"},
	"invalid_key":        {http.StatusUnprocessableEntity, "The key is not valid"},
	"reason_required":    {http.StatusUnprocessableEntity, "A reason is required"},
	"nothing_to_release": {http.StatusConflict, "There is nothing to release"},
	"nothing_to_skip":    {http.StatusConflict, "There is nothing to skip"},
	"not_in_attention":   {http.StatusConflict, "The order is not in attention"},
	"not_dead":           {http.StatusConflict, "The order is not dead"},
	"not_suspended":      {http.StatusConflict, "The order is not suspended"},
	"not_suspendable":    {http.StatusConflict, "The order cannot be suspended"},
	"not_waiting":        {http.StatusConflict, "The order does not wait"},
	"different_queue":    {http.StatusConflict, "The orders are assigned to different queues"},
	"invalid_action":     {http.StatusUnprocessableEntity, "There is no such way to resolve an order"},
	"invalid_move":       {http.StatusUnprocessableEntity, "An order cannot be moved there"},

	// Attachments.
	"attachment_not_found":    {http.StatusNotFound, "The order expects no such attachment"},
	"attachment_exists":       {http.StatusConflict, "The order expects the attachment already"},
	"attachment_complete":     {http.StatusConflict, "The attachment is complete"},
	"attachment_needs_bytes":  {http.StatusConflict, "The attachment needs its bytes"},
	"attachment_check_failed": {http.StatusUnprocessableEntity, "The attachment is not what was announced"},
	"attachment_too_large":    {http.StatusRequestEntityTooLarge, "The attachment is too large"},
	"invalid_attachment":      {http.StatusUnprocessableEntity, "The attachment is not valid"},
	"size_mismatch":           {http.StatusUnprocessableEntity, "The body is not as long as announced"},
	"attachment_not_complete": {http.StatusConflict, "The attachment is not complete"},
	"attachment_has_no_bytes": {http.StatusNotFound, "The attachment was marked complete without bytes"},
	"attachment_removed":      {http.StatusGone, "The bytes were removed some time after the order's end"},
	"attachment_uploading":    {http.StatusConflict, "Bytes of an unfinished upload are there"},
	"invalid_offset":          {http.StatusRequestedRangeNotSatisfiable, "There is no such offset"},
	"upload_not_found":        {http.StatusNotFound, "There is no such upload"},
	"upload_offset":           {http.StatusConflict, "The upload stands at another offset"},
	"upload_ended":            {http.StatusConflict, "The upload has ended"},

	// Definitions.
	"invalid_definition":      {http.StatusUnprocessableEntity, "The definition is not valid"},
	"invalid_name":            {http.StatusUnprocessableEntity, "The name is not valid"},
	"unknown_queue":           {http.StatusNotFound, "There is no such queue"},
	"unknown_lock":            {http.StatusNotFound, "There is no such lock"},
	"unknown_agent":           {http.StatusNotFound, "There is no such agent"},
	"unknown_workflow":        {http.StatusNotFound, "There is no such workflow"},
	"unknown_kind":            {http.StatusNotFound, "There are no such definitions"},
	"weight_exceeds_capacity": {http.StatusUnprocessableEntity, "A weight is larger than its lock"},
	"lock_cycle":              {http.StatusUnprocessableEntity, "Lock steps could wait for each other"},
	"queue_in_use":            {http.StatusConflict, "Live orders are assigned to the queue"},
	"queue_listed":            {http.StatusConflict, "The queue is listed by a resource"},
	"lock_in_use":             {http.StatusConflict, "The lock is in use"},
	"agent_in_use":            {http.StatusConflict, "The agent is in use"},
	"workflow_in_use":         {http.StatusConflict, "The workflow is in use"},

	// Lines, pauses, lists.
	"invalid_mode":  {http.StatusUnprocessableEntity, "There is no such mode of a line"},
	"invalid_pause": {http.StatusUnprocessableEntity, "The pause is not valid"},
	"unknown_list":  {http.StatusNotFound, "There is no such list"},

	// Tokens.
	"token_not_found": {http.StatusNotFound, "There is no such token"},
	"token_exists":    {http.StatusConflict, "The name of the token is taken"},
	"invalid_role":    {http.StatusUnprocessableEntity, "There is no such role"},

	// Agents.
	"session_gone": {http.StatusGone, "The session has ended"},
	"stale_lease":  {http.StatusConflict, "The lease is not held any more"},

	// Schemas.
	"production_clock": {http.StatusConflict, "The clock of a production schema cannot be set"},
}
