-- Sign-in attempts that have not succeeded, by subject: an account, an unknown login, or an account at an address that its
-- player has used before. The row of a subject is deleted when a sign-in succeeds.
CREATE TABLE failed_sign_ins (
    subject VARCHAR(128) PRIMARY KEY,
    attempts INTEGER NOT NULL,
    -- No attempt is admitted before this time.
    retry_at TIMESTAMP WITH TIME ZONE NOT NULL,
    attempted_at TIMESTAMP WITH TIME ZONE NOT NULL
);

CREATE INDEX idx_failed_sign_ins_attempted ON failed_sign_ins (attempted_at);

-- Each refresh token is derived from the one before it with refresh_secret, so the reuse of any earlier token is detected
-- without storing them all. generation counts the refreshes.
ALTER TABLE sessions
    ADD COLUMN refresh_secret UUID NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN generation INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN renewed_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now();

DROP INDEX idx_sessions_previous_refresh_hash;
ALTER TABLE sessions DROP COLUMN previous_refresh_hash;
