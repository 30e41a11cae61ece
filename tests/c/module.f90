! The functions of the module tandem, on one process: y(1, i) = x(1, i) - 2 x(2, i).
program module_test
  use tandem
  use, intrinsic :: iso_c_binding, only: c_char
  use, intrinsic :: iso_fortran_env, only: real32, real64, int64
  implicit none
  integer, parameter :: n = 64
  real(real64) :: x(2, n), y(1, n), p(1, n), wide(2, 2*n), loss, number, first
  real(real32) :: q(1, n)
  real(real64), target :: kernel(1, 2), dx(2, n), weight(n)
  type(tandem_model_t) :: model, loaded, none
  type(tandem_group_t) :: no_group
  integer :: i, status, rank, ranks

  call tandem_threads(1)
  call tandem_seed(3)
  call tandem_replica_invariant_parts(0)
  if (len(tandem_version()) < 5) call failed('version')
  call tandem_model(model, '{"inputs": [2], "layers": [{"type": "danse"}]}', status=status)
  if (status /= tandem_invalid_argument .or. index(tandem_message(), 'layers[0].type') == 0) call failed('definition')
  if (tandem_status_name(status) /= 'INVALID_ARGUMENT') call failed('name of the status')
  call tandem_model(model, '{"inputs": [2], "layers": [{"type": "dense", "units": 1, "name": "d"}], ' // &
    '"optimizer": {"type": "adam", "learning_rate": 0.05}, "loss": "mse"}')
  do i = 1, n
    x(:, i) = [sin(1d0 * i), cos(2.3d0 * i)]
    y(1, i) = x(1, i) - 2 * x(2, i)
    wide(:, 2*n + 2 - 2*i) = x(:, i)
  end do
  call tandem_evaluate(model, tandem_array(x), tandem_array(y), first)
  weight = 1
  do i = 1, 300
    call tandem_train(model, tandem_array(x), tandem_array(y), loss, tandem_array(weight))
  end do
  if (.not. (first > 0.1d0 .and. loss < 1d-4)) call failed('training')
  call tandem_get(model, 'step', number)
  if (nint(number) /= 300) call failed('step')
  call tandem_set(model, 'learning_rate', 0.01d0)
  call tandem_get(model, 'learning_rate', number)
  if (abs(number - 0.01d0) > 1d-9) call failed('learning rate')

  call tandem_predict(model, tandem_array(x), p)
  if (maxval(abs(p - y)) > 0.1d0) call failed('predictions')
  call tandem_predict(model, tandem_array(wide(:, 2*n:2:-2)), q)   ! the same examples, by strides
  if (any(q /= real(p, real32))) call failed('a section')

  call tandem_read(model, 'd/kernel', tandem_array(kernel))
  if (abs(kernel(1, 1) - 1) > 0.1d0 .or. abs(kernel(1, 2) + 2) > 0.1d0) call failed('kernel')
  y = 1
  call tandem_backward(model, tandem_array(x), tandem_array(y), .false., tandem_array(dx))
  if (any(abs(dx(1, :) - kernel(1, 1)) > 1d-6) .or. any(abs(dx(2, :) - kernel(1, 2)) > 1d-6)) call failed('gradient')

  call tandem_save(model, 'module_model')
  call tandem_load(loaded, 'module_model')
  call tandem_predict(loaded, tandem_array(x), q)
  if (any(q /= real(p, real32))) call failed('a loaded model')
  kernel = 0
  call tandem_write(loaded, 'd/kernel', tandem_array(kernel))
  call tandem_predict(loaded, tandem_array(x), q)
  if (any(q /= q(1, 1))) call failed('weights that were written')

  call tandem_predict(model, tandem_array(y), p, status)
  if (status /= tandem_invalid_argument .or. index(tandem_message(), 'expected shape') == 0) call failed('a wrong shape')
  call tandem_predict(none, tandem_array(x), p, status)
  if (status /= tandem_invalid_argument) call failed('no model')
  call tandem_group_rank(no_group, rank, ranks, status)
  if (status /= tandem_invalid_argument) call failed('no group')
  call windows()
  call several()
  call tandem_free(model)
  call tandem_free(model)
  call tandem_free(loaded)
  call tandem_free(no_group)
  open (unit=10, file='module_model')
  close (10, status='delete')
  print '(a)', 'ok'
contains
  subroutine several()  ! the inputs a and b, and the results a - 2 b and 3 b
    type(tandem_model_t) :: two
    real(real64) :: a(1, n), b(1, n), weights(n)
    real(real32) :: d(1, n)
    real(real64), target :: e(1, n), p1(1, n)
    real(real32), target :: p2(1, n)
    integer :: step
    call tandem_model(two, '{"inputs": {"a": [1], "b": [1]}, "layers": [{"type": "concatenate", "name": "both"}, ' // &
      '{"type": "dense", "units": 1, "name": "d"}, {"type": "dense", "units": 1, "name": "e", "inputs": "both"}], ' // &
      '"outputs": ["d", "e"], "optimizer": {"type": "adam", "learning_rate": 0.05}, "loss": "mse"}')
    a(1, :) = x(1, :); b(1, :) = x(2, :)
    d = real(a - 2 * b, real32)
    e = 3 * b
    weights = 1
    call tandem_evaluate_multi(two, [tandem_array(a), tandem_array(b)], [tandem_array(d), tandem_array(e)], first)
    do step = 1, 300
      call tandem_train_multi(two, [tandem_array(a), tandem_array(b)], [tandem_array(d), tandem_array(e)], loss, &
                              tandem_array(weights))
    end do
    if (.not. (first > 0.1d0 .and. loss < 1d-3)) call failed('training of two inputs')
    call tandem_predict_multi(two, [tandem_array(a), tandem_array(b)], [tandem_array(p1), tandem_array(p2)])
    if (maxval(abs(p1 - d)) > 0.1d0 .or. maxval(abs(p2 - e)) > 0.1d0) call failed('predictions of two outputs')
    call tandem_train(two, tandem_array(a), tandem_array(d), status=status)
    if (status /= tandem_invalid_argument .or. index(tandem_message(), 'the 2 arrays') == 0) call failed('one of two inputs')
    call tandem_free(two)
  end subroutine
  subroutine windows()  ! trained in the program's thread, in the background, and after a restart
    type(tandem_window_t) :: window, none_too, other
    type(tandem_trainer_t) :: trainer
    type(tandem_report_t) :: report
    type(tandem_model_t) :: restarted
    integer(int64) :: samples, pushed, bytes
    character(kind=c_char), allocatable :: state(:)
    integer :: step, found
    call tandem_window(window, model, capacity=40, batch=8, random=.true., holdout=0.1d0, seed=3)
    do step = 1, 5
      call tandem_push(window, tandem_array(x), tandem_array(y))
      call tandem_train_window(window, model, max_steps=2, report=report)
      if (report%steps /= 2 .or. .not. report%loss >= 0) call failed('steps on a window')
    end do
    call tandem_count(window, samples, pushed)
    if (samples /= 40 .or. pushed /= 5 * n) call failed('samples of a window')
    call tandem_train_window(window, model, max_seconds=1d-9, report=report)
    if (report%steps /= 1) call failed('seconds')
    call tandem_train_window(window, model, max_steps=0, status=status)
    if (status /= tandem_invalid_argument) call failed('no budget')
    call tandem_trainer_start(trainer, model, window, max_lag=1, steps_per_push=3d0)
    do step = 1, 4
      call tandem_push(window, tandem_array(x), tandem_array(y))
      call tandem_trainer_update(trainer, report)
    end do
    call tandem_get(model, 'step', number)
    call tandem_trainer_stop(trainer, report)
    if (report%step /= nint(number) + 12) call failed('steps in the background')
    call tandem_checkpoint_write('module_cycles', 7, [model], [window])
    call tandem_state_size(model, window, bytes)
    allocate (state(bytes))
    call tandem_state_get(model, window, state)
    call tandem_predict(model, tandem_array(x), p)
    call tandem_model(restarted, '{"inputs": [2], "layers": [{"type": "dense", "units": 1, "name": "d"}], ' // &
      '"optimizer": {"type": "adam", "learning_rate": 0.05}, "loss": "mse"}')
    call tandem_window(other, restarted, capacity=40, batch=8, random=.true., holdout=0.1d0, seed=3)
    call tandem_checkpoint_read('module_cycles', -1, [restarted], [other], found)
    call tandem_predict(restarted, tandem_array(x), q)
    if (found /= 7 .or. any(q /= real(p, real32))) call failed('a checkpoint')
    call tandem_train_window(other, restarted)
    call tandem_state_set(restarted, other, state)
    call tandem_predict(restarted, tandem_array(x), q)
    if (any(q /= real(p, real32))) call failed('a state')
    call tandem_push(none_too, tandem_array(x), tandem_array(y), status)
    if (status /= tandem_invalid_argument) call failed('no window')
    call tandem_free(window)
    call tandem_free(window)
    call tandem_free(other)
    call tandem_free(restarted)
  end subroutine
  subroutine failed(what)
    character(*), intent(in) :: what
    print '(4a)', 'wrong: ', what, ': ', tandem_message()
    error stop 1
  end subroutine
end program
